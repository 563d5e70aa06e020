"""Further evaluation text of a pretraining: the held-out text of the run before, and general text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from osbert.corpus.shards import Corpus
from osbert.data.batch import Batch
from osbert.data.loader import PretrainingLoader
from osbert.data.stages import Stages, first_steps, require_sequences
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.training.tracking import BEFORE, GENERAL

STEPS = 4
"""Amount of general text for evaluation, in steps; with a curriculum, of each objective."""


def other_text(plan: PretrainPlan) -> dict[str, list[Batch]]:
    """Return the batches of other text by the name of their measurements. Their masks are always the same."""
    before = [] if plan.origin is None else plan.origin.read_held_out()
    batches_by_name = {BEFORE: [batch for batch in before if plan.objectives.keys() & batch.targets.keys()]}
    if plan.general is not None:
        batches_by_name[GENERAL] = [*chain(*first_steps(_loader(plan, plan.general), STEPS))]
    return {name: batches for name, batches in batches_by_name.items() if batches}


def with_general(plan: PretrainPlan, general: Corpus) -> PretrainPlan:
    """Return the plan with a corpus of general text. Raises UserError if an objective can make no sequence of it."""
    require_sequences(_loader(plan, general))
    return replace(plan, general=general)


def _loader(plan: PretrainPlan, general: Corpus) -> PretrainingLoader | Stages:
    """Return the loader of all general text."""
    data = replace(plan.settings.data, held_out=0.0)
    whole = replace(plan, corpus=general, settings=replace(plan.settings, data=data))
    return whole.loader(length=data.length)


def forgotten(losses: Mapping[str, float], lowest: dict[str, float]) -> tuple[str, float]:
    """Return the name and rise of the loss that is furthest above its lowest value; update `lowest`.

    >>> lowest = {}
    >>> forgotten({"general.mlm.loss": 2.0}, lowest), forgotten({"general.mlm.loss": 2.5}, lowest)
    (('general.mlm.loss', 0.0), ('general.mlm.loss', 0.5))
    """
    for name, loss in losses.items():
        lowest[name] = min(loss, lowest.get(name, loss))
    return max(((name, loss - lowest[name]) for name, loss in losses.items()), key=lambda rise: rise[1])
