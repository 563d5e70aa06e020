"""Steps made by several processes: the very steps that one would make, even when one of them is killed."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from multiprocessing import Pipe, active_children
from pathlib import Path

import pytest

from osbert.corpus.build import Build
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.data import workers as module
from osbert.data.loader import LoaderSettings, PretrainingLoader
from osbert.data.pack import Packer
from osbert.data.step import Cursor, Step
from osbert.data.workers import DEATHS, make_in_workers
from osbert.errors import UserError
from osbert.objectives.mlm import MaskedLanguage
from osbert.reading.documents import DocumentOptions
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

STEPS = 200
"""More than the pipes hold."""


@pytest.fixture
def loader(tmp_path: Path) -> PretrainingLoader:
    """A loader whose pools end within the steps that are looked at."""
    words = [chr(ord("a") + number) for number in range(26)]
    tokenizer = Tokenizer([*SPECIALS, *words])
    source = tmp_path / "source.txt"
    source.write_text("\n".join(" ".join(words[start:] + words[:start]) for start in range(26)), encoding="utf-8")
    settings = BuildSettings(reading=DocumentOptions(documents="line"))
    Build.prepare([source], tokenizer=tokenizer, folder=tmp_path / "corpus", settings=settings).run()
    return PretrainingLoader(
        Corpus.open(tmp_path / "corpus"),
        {"mlm": MaskedLanguage()},
        Packer(tokenizer=tokenizer, length=16),
        LoaderSettings(batch=4, pool=300, held_out=0.0),
    )


def plain(step: Step) -> tuple[object, ...]:
    batches = [(batch.ids.tolist(), batch.targets["mlm"].labels.tolist(), batch.lengths) for batch in step.batches]
    return batches, step.cursor, step.cursor.step


@pytest.mark.usefixtures("forked")
def test_workers_make_the_same_steps_and_a_killed_one_is_replaced(loader: PretrainingLoader) -> None:
    start = [step.cursor for step in islice(loader.steps(Cursor()), 2)][-1]
    expected = [plain(step) for step in islice(loader.steps(start), STEPS)]
    assert len({cursor.pool for _, cursor, _ in expected}) > 1
    helped = loader.part(loader.rank_part)
    helped.settings = replace(loader.settings, workers=2)
    found = []
    with closing(helped.steps(start)) as stream:
        for number, step in enumerate(islice(stream, STEPS)):
            found.append(plain(step))
            if number == 4:
                victim = min(child.pid for child in active_children() if child.name == "osbert-loader")
                os.kill(victim, signal.SIGKILL)
    assert found == expected
    assert helped.notices == [
        f"A process of the loader (PID {victim}) died with status -9; a new one does its work again."
    ]
    assert not [child for child in active_children() if child.name == "osbert-loader"]


class Mortal:
    """Stands for a process that dies at once."""

    def __init__(self, *arguments: object, **more: object) -> None:
        pass

    def step(self) -> None:
        return None

    def death(self) -> str:
        return "died"

    def end(self) -> None:
        pass


def test_deaths_over_one_step_end_the_run(monkeypatch: pytest.MonkeyPatch, loader: PretrainingLoader) -> None:
    monkeypatch.setattr(module, "_Worker", Mortal)
    notices: list[str] = []
    with refusal("out-of-memory", "3", "data.workers", "0"):
        next(make_in_workers(loader, Cursor(), workers=2, notices=notices))
    assert len(notices) == DEATHS


class Failing:
    together = 2

    def draws(self, cursor: Cursor) -> Iterator[int]:
        yield from range(8)
        raise UserError("the shard is damaged")

    def make(self, draws: Sequence[int]) -> list[Step]:
        return [Step(batches=[], cursor=Cursor(index=draw)) for draw in draws]


def test_a_worker_makes_its_turns_and_passes_on_what_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    ours, theirs = Pipe(duplex=False)
    module._work(theirs, Failing(), Cursor(), 1, 2)
    assert [pickle.loads(ours.recv_bytes()).cursor.index for _ in range(4)] == [1, 3, 5, 7]
    assert str(pickle.loads(ours.recv_bytes())) == "the shard is damaged"


def test_a_worker_ends_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    ours, theirs = Pipe(duplex=False)
    ours.close()
    module._work(theirs, Failing(), Cursor(), 0, 1)
