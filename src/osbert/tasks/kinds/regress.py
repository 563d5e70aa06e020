"""regress: one number for a text or a pair of texts, by squared error (STS-B, section 4.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.errors import Problems
from osbert.tasks import Prediction, Record, Source
from osbert.tasks.edges import Edge, ExplainedScore, require_label
from osbert.tasks.features import FeatureTask
from osbert.tasks.tables.numbers import SMALLEST, DecimalMark, NumberSource, parse_number
from osbert.tasks.tables.texts import TextTask

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


NUMBER = "number"
"""The name of the score in explanations."""


@dataclass(frozen=True, kw_only=True)
class Regress(FeatureTask, TextTask):
    """Texts or pairs with one number each.

    The model learns numbers of mean 0 and deviation 1, so that one learning rate suits scores of 0 to 5 and prices
    alike; predictions and metrics are in the user's own unit.
    """

    values = "numbers"
    edge = Edge(kind="regress", call="predict")
    published_outputs = 1
    numbers: ClassVar[bool] = True
    reader: ClassVar[type[Source]] = NumberSource

    both_orders: bool = False
    """Read every pair in both orders and add the two states before the task's layer, for pairs without a meaningful
    order (GPT's similarity, Radford et al. 2018, figure 1: MRPC, QQP, STS-B). It takes twice the time."""
    apart: bool = False
    """Encode each text of a pair by itself; the task's layer gets their vectors u and v, |u - v|, uv and their
    cosine (Reimers and Gurevych 2019, section 3): for encoders that were trained for sentence vectors."""
    decimal: DecimalMark = "auto"
    """The decimal mark of the numbers: point or comma; detected, but a comma only if all fractions have it."""
    center: float = 0.0
    """Mean of the training numbers; set in training."""
    scale: float = 1.0
    """Standard deviation of the training numbers; set in training."""
    training_range: tuple[float, ...] = ()
    """Lowest and highest of the training numbers; set in training. () in runs that predate this setting."""

    row_score: ClassVar[str] = "minus the mean absolute error"

    @property
    def criterion(self) -> str:
        """Return R2, the fraction of variance explained; a correlation would accept predictions of a wrong scale."""
        return "r2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.training_range) not in (0, 2):
            raise ValueError(f"training_range is two numbers, the lowest and the highest, not {self.training_range}")

    @property
    def training_facts(self) -> dict[str, list[Any]]:
        numbers = {"range": [*self.training_range]} if self.training_range else {}
        return super().training_facts | numbers

    def value(self, text: str) -> float:
        return parse_number(text)

    def fit(self, records: Sequence[Record]) -> Self:
        numbers = np.array([record.label for record in records], np.float64)
        # The deviation of equal numbers is rounding error, and that of very close ones 0.
        scale = float(numbers.std()) if np.ptp(numbers) > SMALLEST else 0.0
        ends = (float(numbers.min()), float(numbers.max()))
        return dataclasses.replace(self, center=float(numbers.mean()), scale=scale, training_range=ends)

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        if self.scale == 0 and len({*self.training_range}) > 1:
            low, high = self.training_range
            problems.add(
                f"the training numbers, from {low:g} to {high:g}, differ by less than {SMALLEST:g}. Write them in a "
                "smaller unit.",
                code="nothing-to-learn",
            )
        elif self.scale == 0:
            problems.add(
                f"every training row has the number {self.center:g}; there is nothing to learn. Add rows with other "
                "numbers, or name the right column with --label.",
                code="nothing-to-learn",
            )

    def target(self, label: float) -> tuple[Any, Any]:
        return np.float32((label - self.center) / self.scale), None

    def head(self, backbone: Backbone) -> Head:
        if self.features != "none":
            return self.head_on_features(backbone)
        from osbert.models.heads.contrastive import ApartHead
        from osbert.models.heads.predictions import NumberHead

        rate = backbone.architecture.dropout
        if self.apart:
            return ApartHead(backbone, target=self.name, labels=1, dropout=rate, values=self.values)
        return NumberHead(backbone, target=self.name, dropout=rate, orders=1 + self.both_orders)

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> Prediction:
        """Return the number in the user's unit: the mean over a record's windows, or the sum over both orders."""
        return Prediction(value=self.center + self.scale * float(self.join_outputs(outputs)))

    def explain(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the number, in the user's unit, without the mean of the training numbers."""
        if label:
            require_label(label, [NUMBER])
        return [ExplainedScore(label=NUMBER, weights=self.split_weights(np.array([self.scale]), examples))]

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return Pearson and Spearman correlation, mean squared error and R2, 1 - mse / variance.

        Constant predictions correlate 0; constant labels have R2 0.
        """
        from scipy.stats import rankdata

        predicted_numbers = np.array([prediction.value for prediction in predictions], np.float64)
        true = np.array([record.label for record in records], np.float64)
        return {
            "pearson": correlation(predicted_numbers, true),
            "spearman": correlation(rankdata(predicted_numbers), rankdata(true)),
            "mse": (error := float(np.mean((predicted_numbers - true) ** 2))),
            "r2": 1 - error / float(true.var()) if np.ptp(true) else 0.0,
        }

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        return {"value": prediction.value}

    def export_metadata(self) -> dict[str, Any]:
        return {"center": self.center, "scale": self.scale}


def correlation(first: NDArray[np.floating], second: NDArray[np.floating]) -> float:
    """Return the Pearson correlation of two columns (n,), 0 if one of them is constant."""
    if not (np.ptp(first) and np.ptp(second)):  # after the mean is subtracted, equal numbers leave rounding errors
        return 0.0
    first, second = first - first.mean(), second - second.mean()
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / size if size > 0 else 0.0
