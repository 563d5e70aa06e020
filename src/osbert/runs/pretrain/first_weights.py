"""The initial weights of a pretraining, and further evaluation text: held-out text of the run before, general text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from osbert.corpus.shards import Corpus
from osbert.data.batch import Batch
from osbert.data.loader import PretrainingLoader
from osbert.data.stages import Stages, first_steps
from osbert.models.adapting.tuning import freeze
from osbert.models.contract import Learner
from osbert.models.memory import Memory
from osbert.models.random_numbers import fix_seed
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.training.tracking import BEFORE, GENERAL


def build_learner(plan: PretrainPlan) -> Learner:
    """Return the learner with its initial weights: those of the plan's origin, or random ones from the seed."""
    return first_weights(plan)[0]


def first_weights(plan: PretrainPlan) -> tuple[Learner, list[str]]:
    """Return the learner as `build_learner`, and the names of its newly initialised heads and companions."""
    settings = plan.settings
    if plan.origin is not None:
        learner, fresh = plan.origin.learner(
            plan.objectives, settings.model, plan.tokenizer, seed=settings.training.seed
        )
    else:
        with fix_seed(settings.training.seed):
            backbone = settings.model.build()
            backbone.read_vocabulary(plan.tokenizer)
            heads = {name: objective.head(backbone) for name, objective in plan.objectives.items()}
        learner = Learner(backbone, heads)
        fresh = [*heads, *learner.companions]
    if settings.trained == "heads":
        freeze([learner.backbone])
    sizes = settings.model
    if length := getattr(sizes, "memory", 0):  # of the streams
        learner.memory = Memory(streams=settings.data.batch, layers=sizes.layers, length=length, width=sizes.width)
    learner.weights = {name: objective.weight for name, objective in plan.objectives.items() if objective.weight != 1}
    for name, objective in plan.objectives.items():
        if not {*fresh}.isdisjoint(objective.companions or {name}):  # counts say something of the companion alone
            objective.begin(learner.heads[name], plan.corpus.counts)
    return learner, fresh


GENERAL_STEPS = 4
"""Amount of general text for evaluation, in steps; with a curriculum, of each objective."""


def other_text(plan: PretrainPlan) -> dict[str, list[Batch]]:
    """Return the batches of other text by the name of their measurements. Their masks are always the same."""
    before = [] if plan.origin is None else plan.origin.read_held_out()
    batches_by_name = {BEFORE: [batch for batch in before if plan.objectives.keys() & batch.targets.keys()]}
    if plan.general is not None:
        batches_by_name[GENERAL] = [*chain(*first_steps(_general_loader(plan, plan.general), GENERAL_STEPS))]
    return {name: batches for name, batches in batches_by_name.items() if batches}


def with_general(plan: PretrainPlan, general: Corpus) -> PretrainPlan:
    """Return the plan with a corpus of general text. Raises UserError if an objective can make no sequence of it."""
    _general_loader(plan, general).require_sequences()
    return replace(plan, general=general)


def _general_loader(plan: PretrainPlan, general: Corpus) -> PretrainingLoader | Stages:
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
