"""qqp: QQP, whether two questions from Quora are paraphrases; GLUE's official TSVs (section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from osbert.reading.columns import TextColumns
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.tables import DataSetLayout, glue


@dataclass(frozen=True, kw_only=True)
class Qqp(Classify):
    """A folder with train.tsv, dev.tsv and test.tsv. The few rows that lack a cell are left out and counted."""

    spellings: ClassVar[Mapping[str, str]] = {"0": "not_duplicate", "1": "duplicate"}
    layout: ClassVar[DataSetLayout] = glue(
        TextColumns(text="question1", pair="question2", label="is_duplicate"),
        TextColumns(text="question1", pair="question2", label="label"),
        lenient=True,
    )
    positive: ClassVar[str] = "duplicate"

    labels: tuple[str, ...] = ("not_duplicate", "duplicate")
