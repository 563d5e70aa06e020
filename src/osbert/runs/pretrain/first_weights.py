"""The initial weights of a pretraining: random ones, determined by the seed, or those of another encoder."""

from __future__ import annotations

from osbert.models.adapting.tuning import freeze
from osbert.models.contract import Learner
from osbert.models.memory import Memory
from osbert.models.random_numbers import fix_seed
from osbert.runs.pretrain.settings import PretrainPlan


def build_learner(plan: PretrainPlan) -> Learner:
    """Return the learner with its initial weights: those of the plan's origin, or random ones from the seed."""
    return first_weights(plan)[0]


def _memory(plan: PretrainPlan) -> Memory | None:
    """Return an empty memory for the streams of a run; None for models without memory."""
    sizes = plan.settings.model
    length = getattr(sizes, "memory", 0)
    if not length:
        return None
    return Memory(streams=plan.settings.data.batch, layers=sizes.layers, length=length, width=sizes.width)


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
    learner.memory = _memory(plan)
    learner.weights = {name: objective.weight for name, objective in plan.objectives.items() if objective.weight != 1}
    for name, objective in plan.objectives.items():
        if not {*fresh}.isdisjoint(objective.companions or {name}):  # counts say something of the companion alone
            objective.begin(learner.heads[name], plan.corpus.counts)
    return learner, fresh
