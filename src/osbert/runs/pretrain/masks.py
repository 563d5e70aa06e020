"""Masked sequences of a corpus as a recipe makes them, for `osbert corpus show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from osbert.data.example import Example
from osbert.data.stages import Stages
from osbert.data.step import Cursor
from osbert.interop.opening import CAREFUL, Opening
from osbert.objectives.mlm import MaskedLanguage
from osbert.reports.mask_text import MaskRates, count_rates, legend, rates_table, show_masks
from osbert.runs.pretrain.settings import PretrainPlan, read_plan

SAMPLED = 2_000
"""Number of sequences for the measured rates."""


@dataclass(frozen=True, kw_only=True)
class MaskSample:
    """The first sequences of a run; the target `pieces` has the original pieces of masks, "" if nothing is masked."""

    plan: PretrainPlan
    pieces: str
    examples: list[Example]

    @property
    def rates(self) -> MaskRates | None:
        """The measured rates over all sequences, beside those in the settings; None if nothing is masked."""
        return count_rates(self.examples, self.pieces, self.plan.tokenizer) if self.pieces else None

    def text(self, count: int) -> Iterator[Text | Table]:
        """Yield lines: `count` sequences as the model sees them, and a table of the rates."""
        plan, tokenizer = self.plan, self.plan.tokenizer
        # With a curriculum only one objective has labels here.
        objectives = {
            name: objective for name, objective in plan.objectives.items() if name in self.examples[0].targets
        }
        yield legend()
        for example in self.examples[:count]:
            yield Text()
            yield show_masks(example, tokenizer, objectives)
        title = f"Masks of {plan.name}, {len(self.examples):,} sequences"
        table = rates_table(self.rates, self.examples, objectives, title=title, length=plan.settings.data.length)
        if table.row_count:
            yield Text()
            yield table


def sample_masks(
    corpus: Path, recipe: str, settings: Mapping[str, Any], *, least: int = SAMPLED, opening: Opening = CAREFUL
) -> MaskSample:
    """Return sequences of a corpus, masked by a recipe and settings: at least `least`, and enough for the rates.

    Raises UserError as pretraining does.
    """
    plan = read_plan(recipe, settings, corpus=corpus, opening=opening)
    masked = next((part for part in plan.objectives.values() if isinstance(part, MaskedLanguage)), None)
    loader = plan.loader(length=plan.settings.data.length)
    # With a curriculum each step has the labels of one objective: of that with masks, or of the first.
    shown = masked or next(iter(plan.objectives.values()))
    stream = (loader.loaders[shown.name] if isinstance(loader, Stages) else loader).examples(Cursor())
    pieces = "" if masked is None else masked.pieces
    return MaskSample(plan=plan, pieces=pieces, examples=list(islice(stream, max(SAMPLED, least))))
