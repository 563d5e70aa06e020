"""Batch, epochs and learning rate where they are not given: those of the run that goes on, or what few rows need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.runs.finetune.plan import LEFT_OPEN, Plan
from osbert.tasks import Record, Task
from osbert.training.run_folder import RunFolder

STEPS = 200
"""Fewest optimiser steps of a fine-tuning whose settings are left open: after fewer a classifier may still guess."""
LENGTH = ("training.batch", "training.epochs")
"""The settings that decide how many steps there are."""
BATCH, EPOCHS, RATE = 8, 10, 5e-5
"""The smallest batch and the most epochs that few rows get, and the learning rate of such a run."""


def small_data(steps: Callable[[int], int], *, batch: int, epochs: int) -> tuple[int, int]:
    """Return batch and epochs that make STEPS steps, or as near to it as BATCH and EPOCHS allow.

    `steps(batch)`: the steps of an epoch. The batch is halved first, since that makes more steps without another pass
    over the rows.

    >>> small_data(lambda batch: -(-1000 // batch), batch=32, epochs=3)
    (8, 3)
    >>> small_data(lambda batch: -(-200 // batch), batch=32, epochs=3)
    (8, 8)
    """
    while batch > BATCH and epochs * steps(batch) < STEPS:
        batch = max(BATCH, batch // 2)
    return batch, max(epochs, min(EPOCHS, -(-STEPS // steps(batch))))


def steps_per_epoch(task: Task, records: Sequence[Record]) -> Callable[[int], int]:
    """Return the function from a batch to the steps of an epoch over the training records that teach."""
    teaching = [record for record in records if task.teaches(record)]
    return lambda batch: max(1, -(-len(teaching) // task.per_step(batch, teaching)))


def resolved(plan: Plan, steps: Callable[[int], int], out: Path) -> Plan:
    """Return the plan with the settings that the user left open; one line says which, and why.

    Few rows change them only if both batch and epochs are open: who gives one of them counts on the paper's value of
    the other. A run that was begun in the folder `out` goes on with its own. `steps`: as in `small_data`.
    """
    if stored := _stored(out, plan.open):
        plan = _with(plan, stored)
        print(f"{_listed(stored)}: as the run in {out} was begun")
        return plan
    if not plan.open.issuperset(LENGTH):
        return plan
    before = plan.training.batch, plan.training.epochs
    found = small_data(steps, batch=before[0], epochs=before[1])
    if found == before:
        return plan
    chosen: dict[str, Any] = dict(zip(LENGTH, found))
    if "optimizer.learning_rate" in plan.open:
        chosen["optimizer.learning_rate"] = RATE
    made, makes = (epochs * steps(batch) for batch, epochs in (before, found))
    print(
        f"{_listed(chosen)}: batch {before[0]} and {before[1]} epochs would make {made:,} steps, too few to learn "
        f"from; these make {makes:,}. --settings paper keeps to the paper's."
    )
    return _with(plan, chosen)


def _stored(out: Path, names: Collection[str]) -> dict[str, Any]:
    """Return those of the settings that a fine-tuning in a folder was begun with, but a rate with which it failed."""
    facts = RunFolder(out).facts if names else {}
    if facts.get("command") != "finetune":
        return {}
    tables: Mapping[str, Any] = facts.get("settings", {})
    found = {
        name: tables.get(name.partition(".")[0], {}).get(name.partition(".")[2]) for name in LEFT_OPEN if name in names
    }
    if "failed" in facts:
        found.pop("optimizer.learning_rate", None)
    return {name: value for name, value in found.items() if value is not None}


def _with(plan: Plan, chosen: Mapping[str, Any]) -> Plan:
    parts: dict[str, Any] = {}
    for part in ("training", "optimizer"):
        before = getattr(plan, part)
        own = {name.partition(".")[2]: value for name, value in chosen.items() if name.startswith(f"{part}.")}
        parts[part] = recipe.build(type(before), recipe.as_table(before) | own, where="The run folder")
    return dataclasses.replace(plan, **parts)


def _listed(chosen: Mapping[str, Any]) -> str:
    leaves = {name.partition(".")[2].replace("_", " "): value for name, value in chosen.items()}
    return ", ".join(f"{name} {value:g}" for name, value in leaves.items())
