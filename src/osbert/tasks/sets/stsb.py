"""stsb: STS-B, how alike are the meanings of two sentences, from 0 to 5? GLUE's official TSVs (section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from osbert.reading.columns import TextColumns
from osbert.reading.splits import USUAL
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.tables import DataSetLayout, glue


@dataclass(frozen=True, kw_only=True)
class Stsb(Regress):
    """A folder with train.tsv, dev.tsv and test.tsv, with the columns sentence1, sentence2 and score.

    Or the original release, GLUE's folder STS-B/original: sts-train.tsv, sts-dev.tsv and sts-test.tsv. They have no
    header, and some rows have two more cells at the end, the sentences' source and its licence.
    """

    layout: ClassVar[DataSetLayout] = glue(
        TextColumns(text="sentence1", pair="sentence2", label="score"),
        TextColumns(text="sentence1", pair="sentence2", label="label"),
        TextColumns(text="column 6", pair="column 7", label="column 5"),
        unlabelled=("-1.0",),
        instead={split: f"sts-{split}" for split in USUAL},
        surplus=2,
    )

    @property
    def criterion(self) -> str:
        """Return Spearman correlation, the score of the paper's Table 1; Pearson's is official too."""
        return "spearman"
