"""wnli: WNLI, the referent of a pronoun. By default the majority class is predicted, as in the paper (appendix B.1)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from osbert.reading.columns import TextColumns
from osbert.tasks import Prediction, Record
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.tables import DataSetLayout, glue


@dataclass(frozen=True, kw_only=True)
class Wnli(Classify):
    """A folder with train.tsv, dev.tsv and test.tsv (index, sentence1, sentence2, label)."""

    spellings: ClassVar[Mapping[str, str]] = {"0": "not_entailment", "1": "entailment"}
    layout: ClassVar[DataSetLayout] = glue(
        TextColumns(text="sentence1", pair="sentence2", label="label"),
    )

    labels: tuple[str, ...] = ("not_entailment", "entailment")
    rule: Literal["majority", "model"] = "majority"
    """majority: every prediction is the most frequent label of the training rows, as in the paper, because all earlier
    systems scored lower (appendix B.1); model: the model's own predictions."""
    majority: str = ""
    """The most frequent label of the training rows."""

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task with the most frequent label, the first one if there are several."""
        counts = Counter(record.label for record in records)
        # max returns the first of equal labels.
        majority = max(self.labels, key=lambda label: counts[label])
        return dataclasses.replace(super().fit(records), majority=majority)

    def decode(self, *arguments: Any) -> Prediction:
        """Return the model's prediction, or with majority the most frequent label, with a probability of 1."""
        prediction = super().decode(*arguments)
        if self.rule == "model" or not self.majority:
            return prediction
        return dataclasses.replace(
            prediction,
            value=self.majority,
            probabilities={label: float(label == self.majority) for label in self.labels},
        )

    @property
    def weighed(self) -> bool:
        """Return whether predictions are the model's. Those of the majority have no probabilities to calibrate."""
        return self.rule == "model"

    def remarks(self) -> list[str]:
        """Describe the data, and the effect of predicting the majority."""
        rule = "WNLI: whatever the model says, the majority class is predicted, as in the paper (--rule model)"
        return [*super().remarks(), *([rule] if self.rule == "majority" else [])]
