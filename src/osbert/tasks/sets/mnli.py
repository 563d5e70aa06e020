"""mnli: MultiNLI, whether a premise entails a hypothesis, contradicts it, or neither; GLUE's TSVs (section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar

from osbert.errors import Problems
from osbert.reading.columns import TextColumns
from osbert.reading.splits import plain_name
from osbert.tasks import Prediction, Record, Source
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.tables import DataSetLayout, glue
from osbert.tasks.tables.texts import TextSource


class MatchedSource(TextSource):
    """Reads the matched rows of a split; for development also the mismatched ones."""

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the rows of a split; "dev" is the matched rows, then the mismatched ones if there are any."""
        parts = [split]
        if split == "dev" and "dev_mismatched" in self.files():
            parts.append("dev_mismatched")
        rows = chain.from_iterable(super(MatchedSource, self).records(part, problems) for part in parts)
        # Both files number their rows from 0: number them anew, so that numbers are unique.
        yield from (replace(record, number=number) for number, record in enumerate(rows))


@dataclass(frozen=True, kw_only=True)
class Mnli(Classify):
    """Development rows are those of dev_matched and dev_mismatched; the best epoch is kept by the matched ones."""

    reader: ClassVar[type[Source]] = MatchedSource
    spellings: ClassVar[Mapping[str, str]] = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    layout: ClassVar[DataSetLayout] = glue(
        TextColumns(text="sentence1", pair="sentence2", label="gold_label"),
        TextColumns(text="premise", pair="hypothesis", label="label"),
        unlabelled=("-",),
        lenient=True,
        files={
            "train": ("train",),
            "dev": ("dev_matched", "validation_matched"),
            "test": ("test_matched",),
            "dev_mismatched": ("dev_mismatched", "validation_mismatched"),
            "test_mismatched": ("test_mismatched",),
        },
    )

    labels: tuple[str, ...] = ("entailment", "neutral", "contradiction")

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the scores of the matched rows, and the accuracy on mismatched ones if there are both."""
        parts: dict[bool, list[tuple[Prediction, Record]]] = {}
        for pair in zip(predictions, records, strict=True):
            part = plain_name(Path(pair[1].path)) in self.layout.files["dev_mismatched"]
            parts.setdefault(part, []).append(pair)
        scores = [super(Mnli, self).metrics(*zip(*parts[part])) for part in sorted(parts)]
        return scores[0] | ({"accuracy_mismatched": scores[1]["accuracy"]} if scores[1:] else {})
