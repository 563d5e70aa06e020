"""A mask rate in stages: at each step the stream is that of a loader with one rate, wherever and by whom it is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import corpora
from osbert.corpus.shards import Corpus
from osbert.data.loader import LoaderSettings, PretrainingLoader
from osbert.data.pack import Packer
from osbert.data.step import Cursor, Phases, RankPart, Step
from osbert.objectives.mlm import MaskedLanguage
from osbert.objectives.nsp import NextSentence
from vocabularies import train

STEPS = 20
RATES = [0.4] * 10 + [0.2] * 6 + [0.1] * 4
STAGES = MaskedLanguage(rate=0.4, later_rates=(0.2, 0.1), later_from=(0.5, 0.8))
SETTINGS = LoaderSettings(batch=4, pool=1_000, held_out=0.05)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Any]:
    documents = corpora.invented()
    tokenizer = train(documents, vocabulary=120)
    folder: Path = corpora.build_corpus(tmp_path_factory.mktemp("texts") / "one", documents, tokenizer)
    return Corpus.open(folder), tokenizer


@pytest.fixture(scope="module")
def make(corpus) -> Callable[..., PretrainingLoader]:
    def make(mlm: MaskedLanguage, length: int = 24, settings: LoaderSettings = SETTINGS) -> PretrainingLoader:
        packer = Packer(tokenizer=corpus[1], length=length)
        return PretrainingLoader(corpus[0], {"mlm": mlm, "nsp": NextSentence()}, packer, settings, run_steps=STEPS)

    return make


def plain(step: Step) -> list[Any]:
    targets = [
        (batch.ids.tolist(), batch.lengths, batch.targets["mlm"].labels.tolist(), batch.targets["mlm"].index.tolist())
        for batch in step.batches
    ]
    return [targets, step.cursor, step.cursor.step]


def at_one_rate(make: Callable[..., Any], **kind: Any) -> list[Any]:
    """Return each step as a loader with the rate of its stage, and no other, makes it."""
    streams = {rate: [*islice(make(MaskedLanguage(rate=rate), **kind).steps(Cursor()), STEPS)] for rate in set(RATES)}
    return [plain(streams[rate][number]) for number, rate in enumerate(RATES)]


def test_each_step_is_that_of_its_rate_from_every_cursor(make) -> None:
    expected = at_one_rate(make)
    loader = make(STAGES)
    assert loader.together > 1  # stages end within what is made at a time
    steps = [*islice(loader.steps(Cursor()), STEPS)]
    assert [plain(step) for step in steps] == expected
    for number in range(1, STEPS):
        again = islice(loader.steps(steps[number - 1].cursor), STEPS - number)
        assert [plain(step) for step in again] == expected[number:]


def test_processes_that_share_a_step_mask_at_its_rate(make) -> None:
    parts = [make(STAGES).part(RankPart(rank=rank, size=2)).steps(Cursor()) for rank in range(2)]
    whole = islice(make(STAGES).steps(Cursor()), STEPS)
    for step, *halves in zip(whole, *parts):
        labels = [sum(len(batch.targets["mlm"].labels) for batch in each.batches) for each in (step, *halves)]
        assert labels[0] == labels[1] + labels[2]


@pytest.mark.usefixtures("forked")
def test_workers_make_the_same_steps(make) -> None:
    with closing(make(STAGES, settings=replace(SETTINGS, workers=2)).steps(Cursor())) as stream:
        found = [plain(step) for step in islice(stream, STEPS)]
    assert found == at_one_rate(make)


@pytest.mark.parametrize("stop", [0, 7, 12, 15, 18])
def test_stages_go_on_over_a_change_of_the_length(make, stop) -> None:
    """Longer sequences from step 15 on; the rates change at 10 and 16."""
    phases = Phases(make(STAGES), make(STAGES, length=48), switch=15)
    cursor = Cursor()
    for step in islice(phases.steps(cursor), stop):
        cursor = step.cursor
    found = [plain(step) for step in islice(phases.steps(cursor), STEPS - stop)]
    whole = [*islice(phases.steps(Cursor()), STEPS)]
    assert found == [plain(step) for step in whole[stop:]]
    for step, rate in zip(whole, RATES, strict=True):
        tokens, labels = zip(*((batch.tokens, len(batch.targets["mlm"].labels)) for batch in step.batches))
        assert sum(labels) / sum(tokens) == pytest.approx(rate, abs=0.03)


def test_held_out_text_is_masked_at_the_first_rate(make) -> None:
    staged, constant = (make(mlm).make_held_out() for mlm in (STAGES, MaskedLanguage(rate=0.4)))
    assert [batch.ids.tolist() for batch in staged] == [batch.ids.tolist() for batch in constant]


@pytest.mark.parametrize(
    "wrong",
    [
        {"later_rates": (0.1,)},
        {"later_from": (0.1,)},
        {"later_rates": (0.0,), "later_from": (0.5,)},
        {"later_rates": (0.2, 0.1), "later_from": (0.5, 0.5)},
        {"later_rates": (0.2,), "later_from": (1.0,)},
        {"later_rates": (0.2,), "later_from": (float("nan"),)},
    ],
)
def test_stages_that_cannot_be_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match="later_"):
        MaskedLanguage(**wrong)
