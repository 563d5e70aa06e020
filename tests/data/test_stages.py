"""Curricula: the steps of each objective in each stage, resumption from any step, and the numbers of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert import components
from osbert.data import loader
from osbert.data.batch import Batch
from osbert.data.loader import LoaderSettings, PretrainingLoader
from osbert.data.pack import Packer
from osbert.data.stages import Curriculum, Stages, first_steps, stage_steps
from osbert.data.step import Cursor, Pace, RankPart, Step
from osbert.objectives.contract import Objective
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.tokenizer import Tokenizer

pytestmark = pytest.mark.lab  # its objectives are those of ERNIE 2.0

STEPS = 24


@given(st.sampled_from(get_args(Curriculum)[1:]), st.integers(1, 6), st.integers(1, 500))
def test_every_task_has_its_part_of_the_steps(curriculum: Curriculum, tasks: int, steps: int) -> None:
    found = np.array(stage_steps(curriculum, tasks, steps))
    assert (found >= 0).all() and found.sum() == steps
    assert abs(found.sum(axis=0) - steps / tasks).max() < 1
    if curriculum == "one_by_one":
        assert np.array_equal(found, np.diag(found.sum(axis=0)))
    if curriculum == "continual":
        assert not np.triu(found, 1).any()
        # All earlier tasks go on in every later stage, as long as there are steps enough.
        assert steps < tasks * (tasks + 1) or (found[np.tril_indices(tasks)] > 0).all()


@pytest.fixture(params=["continual", "one_by_one"])
def stages(request: pytest.FixtureRequest, make_corpus: Callable[..., Any], text: Any, tokenizer: Tokenizer) -> Stages:
    objectives = {
        "mlm": MaskedLanguage(),
        "document_words": components.find("objectives", "document_words", base=Objective)(),
        "distance": components.find("objectives", "distance", base=Objective)(),
    }
    packer = Packer(tokenizer=tokenizer, length=32)
    settings = LoaderSettings(batch=4, held_out=0.05, pool=2000)
    return Stages(
        PretrainingLoader(make_corpus(text), objectives, packer, settings, run_steps=STEPS), request.param, segments=2
    )


def plain(step: Step) -> list[object]:
    return [[batch.ids.tolist(), batch.segments.tolist(), *batch.targets] for batch in step.batches]


def test_steps_follow_the_order_and_go_on_from_any_of_them(stages: Stages) -> None:
    names = list(stages.loaders)
    steps = list(islice(stages.steps(Cursor()), STEPS + 2))
    for number, step in enumerate(steps):
        assert step.cursor.step == number + 1
        assert [{*batch.targets} for batch in step.batches] == [{names[stages.objective(number)]}]
        tasks = {int(kind) // 2 for batch in step.batches for kind in batch.segments}
        assert tasks == {stages.objective(number)}
    counts = np.bincount([stages.objective(number) for number in range(STEPS)])
    assert counts.tolist() == [STEPS // 3] * 3
    for after in (0, 9, 20):
        # As a checkpoint keeps it.
        cursor = Cursor(**json.loads(json.dumps(asdict(steps[after].cursor))))
        again = list(islice(stages.steps(cursor), 3))
        assert [plain(step) for step in again] == [plain(step) for step in steps[after + 1 : after + 4]]


def test_processes_have_parts_of_one_stream_and_every_objective_is_held_out(stages: Stages) -> None:
    whole = next(stages.steps(Cursor()))
    parts = [next(stages.part(RankPart(rank, 2)).steps(Cursor())) for rank in range(2)]
    assert sum(batch.tokens for part in parts for batch in part.batches) == sum(b.tokens for b in whole.batches)
    held = stages.make_held_out()
    assert {name for batch in held for name in batch.targets} == {*stages.loaders}
    texts = {name: loader.held for name, loader in stages.loaders.items()}
    assert texts["mlm"] == texts["distance"]


def test_a_corrected_pace_holds_for_the_steps_of_every_objective(stages: Stages) -> None:
    """The loaders see the same parts of the schedule as the run, and later corrections change no earlier step."""
    paces = [Pace(planned=STEPS)]
    for step, steps in ((6, 60), (30, 40), (32, 33)):
        paces.append(paces[-1].with_correction(step, steps))
    for number, pace in enumerate(paces):
        stages.pace = pace
        drawn = [stages.objective(step) for step in range(pace.steps)]
        counts = np.bincount(drawn, minlength=len(stages.loaders)).tolist()
        assert stages._counts(pace, pace.steps) == counts
        for objective, one in enumerate(each(stages)):
            own = [step for step, found in enumerate(drawn) if found == objective]
            planned = np.flatnonzero(stages.order == objective)
            for count, step in enumerate(own):
                # What this objective has behind it of its schedule, in its own steps and by the order of the run.
                behind = np.searchsorted(planned, int(pace.place(step)))
                assert abs(one.pace.place(count) - behind) < 2
            if number:
                begin = sum(step < pace.corrections[-1][0] for step in own)
                before = one.pace, [one.pace.place(count) for count in range(begin)]
                stages.pace = paces[number - 1]
                assert [one.pace.place(count) for count in range(begin)] == before[1]
                stages.pace = pace
                assert one.pace == before[0]
    stages.pace = Pace(planned=0)  # as in a test of the speed
    turns = [{*batch.targets} for step in islice(stages.steps(Cursor()), 3) for batch in step.batches]
    assert sorted(map(str, turns)) == sorted(str({name}) for name in stages.loaders)


def test_the_first_steps_are_those_of_every_objective(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [[batch for step in islice(one.steps(Cursor()), 2) for batch in step.batches] for one in each(stages)]
    monkeypatch.setattr(loader, "make_in_workers", lambda *_, **given: pytest.fail("a worker was started"))
    for one in each(stages):
        one.settings = replace(one.settings, workers=2)
    found = first_steps(stages, 2)
    assert [ids(batches) for batches in found] == [ids(batches) for batches in alone]
    assert [[*batch.targets] for batches in found for batch in batches[::2]] == [[name] for name in stages.loaders]
    assert [{int(kind) // 2 for batch in batches for kind in batch.segments} for batches in found] == [{0}, {1}, {2}]
    assert ids(first_steps(each(stages)[0], 2)[0]) == ids(alone[0])


def each(stages: Stages) -> list[PretrainingLoader]:
    return [*stages.loaders.values()]


def ids(batches: list[Batch]) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]
