"""qnli: QNLI, whether a sentence of Wikipedia contains the answer to a question; GLUE's TSVs (section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from osbert.reading.columns import TextColumns
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.tables import DataSetLayout, glue


@dataclass(frozen=True, kw_only=True)
class Qnli(Classify):
    """A folder with train.tsv, dev.tsv and test.tsv (index, question, sentence, label)."""

    spellings: ClassVar[Mapping[str, str]] = {"0": "entailment", "1": "not_entailment"}
    layout: ClassVar[DataSetLayout] = glue(
        TextColumns(text="question", pair="sentence", label="label"),
    )

    labels: tuple[str, ...] = ("entailment", "not_entailment")
