"""Sequences of a corpus as pretraining by a recipe would see them, to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from osbert.data.example import Example
from osbert.data.step import Cursor
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.objectives.mlm import MaskedLanguage
from osbert.runs.pretrain.settings import PretrainPlan, read_plan

SAMPLED = 2_000
"""Sequences that rates are counted over."""


@dataclass(frozen=True, kw_only=True)
class MaskSample:
    """The first sequences of a run, masked by the objective called `objective`."""

    plan: PretrainPlan
    objective: str
    examples: list[Example]


def sample_masks(
    corpus: Path, recipe: str, settings: Mapping[str, Any], *, least: int = SAMPLED, opening: Opening = CAREFUL
) -> MaskSample:
    """Return sequences of a corpus as a recipe and settings would mask them: `least`, and as many as rates need.

    Raises UserError for settings that pretraining would refuse, and for objectives without masks.
    """
    plan = read_plan(recipe, settings, corpus=corpus, opening=opening)
    masked = next((part for part in plan.objectives.values() if isinstance(part, MaskedLanguage)), None)
    if masked is None:
        raise UserError(f"--masks shows what mlm does, and objectives = {list(plan.objectives)} leaves it out.")
    stream = plan.loader(length=plan.settings.data.length).examples(Cursor())
    return MaskSample(plan=plan, objective=masked.name, examples=list(islice(stream, max(SAMPLED, least))))
