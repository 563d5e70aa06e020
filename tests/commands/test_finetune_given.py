"""Each setting that the help shows first, and every pair of them: on few rows the others keep their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert import options
from osbert.commands.finetune import FIRST
from osbert.runs.contract import Notice
from osbert.runs.finetune.defaults import fill_defaults
from osbert.runs.finetune.plan import LENGTH, FinetunePlan, flag, read_plan, schema
from osbert.tasks import load
from tiny_runs import write_run

VALUES = {
    "epochs": ("1", "5", "60"),
    "batch": ("4", "8", "64"),
    "learning_rate": ("5e-5", "2e-5", "1e-3"),
    "length": ("16",),
    "dev": ("DEV",),
    "text": ("text",),
    "label": ("label",),
    "long": ("window",),
    "tuning": ("lora", "adapters", "none"),
    "seeds": ("2",),
}
OWN = {
    "epochs": "training.epochs",
    "batch": "training.batch",
    "learning_rate": "optimizer.learning_rate",
    "tuning": "training.tuning",
}
"""Dotted names of the settings that are no task's."""
TABLES = {
    "few": "text,label\n" + "good film,pos\nbad film,neg\n" * 32,
    "some": "text,label\n" + "good film,pos\nbad film,neg\npoor film,odd\n" * 50,
    "more": "text,label\n" + "good film,pos\nbad film,neg\n" * 75,
}

METHODS = {"few": "contrastive", "some": "linear-first", "more": "none"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder"), None)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return tables for contrastive tuning (64 rows), linear-first (three labels) and fine-tuning (150 rows)."""
    folder = tmp_path_factory.mktemp("tables")
    for name, text in TABLES.items():
        (folder / f"{name}.csv").write_text(text)
    return {name: folder / f"{name}.csv" for name in TABLES}


def plan_of(settings: dict[str, str], encoder: Path, data: Path) -> tuple[FinetunePlan, list[str]]:
    """Return the plan with these settings, and the warnings about them."""
    events: list[Any] = []
    words = [word for name, value in settings.items() for word in (flag(name), value)]
    given = options.parse_settings([str(data) if word == "DEV" else word for word in words], schema("classify"))
    read = read_plan("classify", given, model=encoder, data=data)
    task, records = load(read.task, ("train", "dev"))
    plan = fill_defaults(replace(read, tasks=(task,)), [records["train"]], encoder / "none", events.append)
    return plan, [event.text for event in events if isinstance(event, Notice) and event.warning]


def calls() -> Iterator[dict[str, str]]:
    """Yield each setting and each pair of settings, with each of their values."""
    assert tuple(VALUES) == FIRST
    every = [(name, value) for name, values in VALUES.items() for value in values]
    yield from (dict([one]) for one in every)
    yield from (dict(pair) for pair in combinations(every, 2) if pair[0][0] != pair[1][0])


@pytest.mark.lab
@pytest.mark.parametrize("rows", TABLES)
def test_a_given_setting_changes_that_setting_alone_or_a_line_names_it(
    rows: str, encoder: Path, tables: dict[str, Path]
) -> None:
    usual, warnings = plan_of({}, encoder, tables[rows])
    assert not warnings and usual.training.few_shot == METHODS[rows]
    for call in calls():
        # A development file leaves all rows for training, which may change the number of epochs.
        base, _ = plan_of({"dev": "DEV"}, encoder, tables[rows]) if "dev" in call else (usual, [])
        plan, warnings = plan_of(call, encoder, tables[rows])
        assert all(any(flag(name) in text for name in call) for text in warnings), call
        kept = [name for name in LENGTH if name not in {OWN.get(own) for own in call}]
        if "learning_rate" not in call and "tuning" not in call:
            kept.append("optimizer.learning_rate")
        if plan.training.few_shot == base.training.few_shot:
            assert [value(plan, name) for name in kept] == [value(base, name) for name in kept], call
        else:
            assert call["tuning"] and len(warnings) == 1, call
        steps = [-(-len(TABLES[rows].splitlines()) // one.training.batch) * one.training.epochs for one in (plan, base)]
        if plan.training.few_shot == base.training.few_shot != "contrastive" and steps[0] < 0.9 * min(200, steps[1]):
            assert len(warnings) == 1, call
        if "tuning" in call and (rows != "more" or steps[0] < 190):
            assert len(warnings) == 1 and "--tuning" in warnings[0], call
        if call.get("learning_rate") == "1e-3" and "tuning" not in call:
            assert len(warnings) == 1, call


def test_training_with_a_given_setting_is_no_worse_than_the_default_or_a_line_names_it(
    encoder: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    rows = [("a good play", "pos"), ("the bad film", "neg"), ("bad play", "neg"), ("the good actor", "pos")] * 30
    scores = {}
    for number, call in enumerate(({}, {"epochs": 1}, {"batch": 64}, {"epochs": 1, "batch": 64}, {"tuning": "lora"})):
        events: list[Any] = []
        settings: dict[str, Any] = {"dev": rows, "watch": events.append, **call}
        run = osbert.finetune("classify", model=encoder, data=tables["few"], out=tmp_path / str(number), **settings)
        if not any(flag(name) in event.text for name in call for event in events if getattr(event, "warning", False)):
            scores[number] = run.metrics["accuracy"]
    assert {*scores} == {0, 1, 2, 3} and min(scores.values()) >= scores[0] - 0.1, scores


def value(plan: FinetunePlan, name: str) -> Any:
    part, _, setting = name.partition(".")
    return getattr(getattr(plan, part), setting)
