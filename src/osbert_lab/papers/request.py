"""A user's request for a reproduction, and its conversion into a plan with consistent inputs and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert_lab.papers import tables
from osbert_lab.papers.analysis_runs import AnalysisPlan
from osbert_lab.papers.attention import AttentionPlan
from osbert_lab.papers.choices import at_steps, narrow_table
from osbert_lab.papers.encoders import choose
from osbert_lab.papers.plan import TablePlan
from osbert_lab.papers.probing import ProbingPlan
from osbert_lab.papers.scale import RECIPE, TableScale
from osbert_lab.papers.settings import split_settings, table_schemas

MEASURED: Mapping[str, type[AnalysisPlan]] = {"attention": AttentionPlan, "probing": ProbingPlan}
"""The reproductions that analyse an existing model, by name."""


@dataclass(frozen=True, kw_only=True)
class TableRequest:
    """A table, figure or comparison by its `name`, with the options of the command; no file is opened yet."""

    name: str
    data: Path
    out: Path
    corpus: Path | None = None
    model: Path | None = None
    recipe: str
    scale: TableScale = field(default_factory=TableScale)
    settings: Sequence[str] = ()
    """The command line's words with settings of pretraining and fine-tuning."""
    opening: Opening = CAREFUL

    def plan(self) -> TablePlan | AnalysisPlan:
        """Return the plan. Raises UserError if options or settings are unknown or conflict."""
        self.scale.check()
        if measured := MEASURED.get(self.name):
            return self._measuring(measured)
        table = narrow_table(tables.read_table(self.name), self.scale, self.recipe)
        table = table if self.corpus is None else table.with_corpora(self.corpus)
        schemas = table_schemas(table, self.recipe, self.settings, self.opening)
        pretraining, finetuning = split_settings(self.settings, schemas)
        columns = table.columns if self.scale.tasks else table.present(self.data)
        encoders = choose(
            table, self.recipe, corpus=self.corpus, model=self.model, settings=pretraining, opening=self.opening
        )
        return TablePlan(
            table=at_steps(table, encoders, self.scale.points),
            columns=columns,
            encoders=encoders,
            data=self.data,
            out=self.out,
            scale=self.scale,
            finetuning=finetuning,
            opening=self.opening,
        )

    def _measuring(self, plan: type[AnalysisPlan]) -> AnalysisPlan:
        """Return the plan of an analysis. Raises UserError for options that apply only to tables that train models."""
        if self.settings or self.corpus or self.scale != TableScale() or self.recipe != RECIPE:
            raise UserError(
                f"{self.name} measures a model and trains none: it takes only --model, --data and --out.",
                code="options-exclude-each-other",
            )
        if self.model is None:
            raise UserError(f"{self.name} measures a model. Give one: --model FOLDER.", code="missing-option")
        return plan(model=self.model, data=self.data, out=self.out, opening=self.opening)
