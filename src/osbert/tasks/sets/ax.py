"""ax: GLUE's diagnostic set, predicted with a model of mnli: it has no training rows (GLUE, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from osbert.errors import UserError
from osbert.reading.columns import TextColumns
from osbert.tasks import Source, Task
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.tables import DataSetLayout, glue
from osbert.tasks.tables.texts import TextSource


class DiagnosticSource(TextSource):
    """Reads the diagnostic set, which has no training rows."""

    def resolve(self) -> Task:
        """Raise UserError with advice: this set has no training rows."""
        if "all" in self.files():
            return super().resolve()
        raise UserError(
            f"{self.called}: the diagnostic set has no training rows. Fine-tune mnli, and predict it with that run: "
            "osbert submit, or osbert evaluate RUN --data diagnostic-full.tsv.",
            code="missing-split",
        )


@dataclass(frozen=True, kw_only=True)
class Ax(Classify):
    """diagnostic.tsv (index, sentence1, sentence2), or diagnostic-full.tsv with labels, scored by Matthews' R3."""

    reader: ClassVar[type[Source]] = DiagnosticSource
    spellings: ClassVar[Mapping[str, str]] = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    layout: ClassVar[DataSetLayout] = glue(
        TextColumns(text="sentence1", pair="sentence2", label="label"),
        TextColumns(text="Premise", pair="Hypothesis", label="Label"),
        TextColumns(text="premise", pair="hypothesis", label="label"),
        files={"dev": ("diagnostic-full",), "test": ("diagnostic", "ax", "test")},
    )

    # The order of mnli's labels, whose models predict this set.
    labels: tuple[str, ...] = ("entailment", "neutral", "contradiction")

    @property
    def criterion(self) -> str:
        """Return Matthews correlation of three classes (R3)."""
        return "matthews"
