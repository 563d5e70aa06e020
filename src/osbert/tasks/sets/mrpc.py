"""mrpc: MRPC, whether two sentences of news are paraphrases; GLUE's TSVs or Microsoft's own files (section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from osbert.reading.columns import TextColumns
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.tables import DataSetLayout, glue


@dataclass(frozen=True, kw_only=True)
class Mrpc(Classify):
    """train.tsv and dev.tsv, or msr_paraphrase_train.txt alone, some of whose rows are held out for development."""

    spellings: ClassVar[Mapping[str, str]] = {"0": "not_equivalent", "1": "equivalent"}
    layout: ClassVar[DataSetLayout] = glue(
        TextColumns(text="#1 String", pair="#2 String", label="Quality"),
        TextColumns(text="sentence1", pair="sentence2", label="label"),
        instead={"train": "msr_paraphrase_train", "test": "msr_paraphrase_test"},
    )
    positive: ClassVar[str] = "equivalent"

    labels: tuple[str, ...] = ("not_equivalent", "equivalent")
