"""Further evaluation text of a pretraining: the held-out text of the run before, and general text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from osbert.data.batch import Batch
from osbert.data.stages import first_steps
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.training.tracking import BEFORE, GENERAL

STEPS = 4
"""Amount of general text for evaluation, in steps; with a curriculum, of each objective."""


def other_text(plan: PretrainPlan) -> dict[str, list[Batch]]:
    """Return the batches of other text by the name of their measurements. Their masks are always the same."""
    before = [] if plan.origin is None else plan.origin.held_out()
    found = {BEFORE: [batch for batch in before if plan.objectives.keys() & batch.targets.keys()]}
    if plan.general is not None:
        data = replace(plan.settings.data, held_out=0.0)
        whole = replace(plan, corpus=plan.general, settings=replace(plan.settings, data=data))
        found[GENERAL] = [*chain(*first_steps(whole.loader(length=data.length), STEPS))]
    return {name: batches for name, batches in found.items() if batches}


def forgotten(losses: Mapping[str, float], lowest: dict[str, float]) -> tuple[str, float]:
    """Return the name and rise of the loss that is furthest above its lowest value; update `lowest`.

    >>> lowest = {}
    >>> forgotten({"general.mlm.loss": 2.0}, lowest), forgotten({"general.mlm.loss": 2.5}, lowest)
    (('general.mlm.loss', 0.0), ('general.mlm.loss', 0.5))
    """
    for name, loss in losses.items():
        lowest[name] = min(loss, lowest.get(name, loss))
    return max(((name, loss - lowest[name]) for name, loss in losses.items()), key=lambda rise: rise[1])
