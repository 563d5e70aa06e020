"""Curricula: the steps of each objective in each stage, resumption from any step, and the numbers of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.loader import LoaderSettings, PretrainingLoader
from osbert.data.pack import Packer
from osbert.data.stages import Curriculum, Stages, stage_steps
from osbert.data.step import Cursor, RankPart, Step
from osbert.objectives.distance import Distance
from osbert.objectives.document_words import DocumentWords
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.tokenizer import Tokenizer

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
    objectives = {"mlm": MaskedLanguage(), "document_words": DocumentWords(), "distance": Distance()}
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
    held = stages.held_out()
    assert {name for batch in held for name in batch.targets} == {*stages.loaders}
    texts = {name: loader.held for name, loader in stages.loaders.items()}
    assert texts["mlm"] == texts["distance"]
