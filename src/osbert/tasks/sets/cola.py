"""cola: CoLA, whether an English sentence is grammatical; GLUE's official TSVs (section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from osbert.reading.columns import TextColumns
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.tables import DataSetLayout, glue


@dataclass(frozen=True, kw_only=True)
class Cola(Classify):
    """Official train.tsv and dev.tsv have no header: source, label, the author's own mark, sentence."""

    spellings: ClassVar[Mapping[str, str]] = {"0": "unacceptable", "1": "acceptable"}
    layout: ClassVar[DataSetLayout] = glue(
        TextColumns(text="column 4", label="column 2"),
        TextColumns(text="sentence", label="label"),
    )

    labels: tuple[str, ...] = ("unacceptable", "acceptable")

    @property
    def criterion(self) -> str:
        """Return Matthews correlation, CoLA's official score."""
        return "matthews"
