"""sst2: SST-2, whether a sentence of a film review is negative or positive; GLUE's official TSVs (section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from osbert.reading.columns import TextColumns
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.tables import DataSetLayout, glue


@dataclass(frozen=True, kw_only=True)
class Sst2(Classify):
    """A folder with train.tsv and dev.tsv (sentence, label) and test.tsv (index, sentence; no labels)."""

    spellings: ClassVar[Mapping[str, str]] = {"0": "negative", "1": "positive"}
    layout: ClassVar[DataSetLayout] = glue(
        TextColumns(text="sentence", label="label"),
    )

    labels: tuple[str, ...] = ("negative", "positive")
