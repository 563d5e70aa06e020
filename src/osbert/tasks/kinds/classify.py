"""classify: one label out of K for a text or a pair of texts; the only new layer is softmax(C W) (section 4.1)."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.errors import Problems, UserError
from osbert.tasks import Description, Prediction, Record, Source
from osbert.tasks.calibration import Calibration
from osbert.tasks.edges import Edge, ExplainedScore, contrast, require_label
from osbert.tasks.features import FeatureTask
from osbert.tasks.probabilities import by_label, reply_fields
from osbert.tasks.tables import TableDescription
from osbert.tasks.tables.classes import (
    check_temperature,
    check_weights,
    describe_fractions,
    describe_joined,
    fit_temperature,
    label_weights,
    list_labels,
    note_unknown,
    softmax,
)
from osbert.tasks.tables.soft_labels import Distribution, SoftLabelSource, SoftRecord, likeliest_label, spread
from osbert.tasks.tables.texts import TextTask

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


SHOWN = 12
"""Most classes of a confusion table that is displayed."""


class ClassDescription(TableDescription):
    """Describes texts with one label each."""

    task: Classify

    def warnings(self) -> list[str]:
        advice = "each combination is a separate class. For several labels per row: osbert finetune multilabel."
        return [*describe_joined(self.task.labels, advice), *describe_fractions(self.task.labels)]

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[list[str]]:
        if len(self.task.labels) > SHOWN:
            return []
        counts = confusion(
            [prediction.value for prediction in predictions], [record.label for record in records], self.task.labels
        )
        rows = [[label, *(f"{count:,}" for count in line)] for label, line in zip(self.task.labels, counts.tolist())]
        return [["true \\ predicted", *self.task.labels], *rows]


@dataclass(frozen=True, kw_only=True)
class Classify(FeatureTask, TextTask):
    """Texts or pairs with one label each. The labels are learnt from the training rows, in sorted order."""

    reader: ClassVar[type[Source]] = SoftLabelSource
    describer: ClassVar[type[Description]] = ClassDescription

    edge = Edge(kind="classify", call="predict")
    published_outputs = 0
    spellings: ClassVar[Mapping[str, str]] = {}
    """The spelling of labels in a data set's files -> their names."""
    positive: ClassVar[str] = ""
    """The label whose F1 is the metric "f1"."""

    class_weights: str = "none"
    """balanced: all classes have the same total weight in the loss; or weights by label, spam=3,ham=0.5, and 1 for
    other labels. With multilabel this is the weight of the rows that have a label; balanced gives them the same total
    weight as the rows without it."""
    weights: tuple[float, ...] = ()
    """The weight of each label in the loss; computed or completed if class_weights is given."""
    both_orders: bool = False
    """Read every pair in both orders and add the two states before the task's layer, for pairs without a meaningful
    order (GPT's similarity, Radford et al. 2018, figure 1: MRPC, QQP, STS-B). It takes twice the time."""
    apart: bool = False
    """Encode each text of a pair by itself; the task's layer gets their vectors u and v, |u - v|, uv and their
    cosine (Reimers and Gurevych 2019, section 3): for encoders that were trained for sentence vectors."""
    temperature: float = 0.0
    """Divisor of the logits before the softmax, so that confidence matches accuracy; 0 to fit it to the development
    rows, 1 for the plain softmax."""
    labels: tuple[str, ...] = ()
    """The labels' names, in the order of the outputs; learnt from the training rows if not given."""
    label_smoothing: float = 0.0
    """Probability mass that the loss distributes evenly over all labels (Szegedy et al. 2016), such as 0.1."""

    focal: float = 0.0
    """Gamma of the focal loss (Lin et al. 2017), such as 2: a row whose label has the probability p has the
    weight (1 - p) ** gamma. 0 for the cross-entropy."""

    robust: float = 0.0
    """q of the generalised cross-entropy (Zhang and Sabuncu 2018), such as 0.7, where many labels are wrong: a row
    whose label the model finds unlikely counts less. Training rows are left out whose label is probably wrong by the
    vectors of the others (confident learning, Northcutt et al. 2021). 0 for all rows and the cross-entropy."""

    ordered: tuple[str, ...] = ()
    """The labels in their order, such as bad,fair,good: the loss gives some probability to a label's neighbours (Díaz
    and Marathe 2019), and the epoch with the highest quadratic kappa (Cohen 1968) is kept."""

    label_columns: tuple[str, ...] = ()
    """Columns named like the labels, each with the probability of its label. `--label a,b,c` names the columns of
    several annotators instead, and a cell of one column may hold {"pos": 0.8, "neg": 0.2}."""
    confidence: str = ""
    """The column with the probability that a row's label is right; the rest is spread evenly over the other labels."""
    normalize: bool = False
    """Divide the probabilities of a row by their sum, which is an error if it is not 1. They may then be counts."""
    aggregation: Literal["auto", "dawid-skene", "votes"] = "auto"
    """How the labels of several annotators become probabilities. dawid-skene: weighed by the reliability of each (Dawid
    and Skene 1979); votes: the fractions of the votes, which may also be a list in a cell. auto: dawid-skene for
    three annotators or more of 50 rows or more."""
    targets: Literal["auto", "soft", "hard"] = "auto"
    """What is learnt of probabilities. soft: the cross-entropy with them; hard: the likeliest label alone. auto: soft
    if the training rows have probabilities. Scores always compare with the likeliest label."""

    @cached_property
    def index_of(self) -> dict[str, int]:
        """The index of each label among the outputs."""
        return {label: number for number, label in enumerate(self.labels)}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights(self.class_weights, self.weights)
        check_temperature(self.temperature)
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, not {self.label_smoothing:g}")
        if not 0 <= self.focal < math.inf:
            raise ValueError(f"focal must be 0 or more, not {self.focal:g}")
        if not 0 <= self.robust <= 1:
            raise ValueError(f"robust must be from 0 to 1, not {self.robust:g}")
        if self.robust and (self.focal or self.label_smoothing or self.ordered):
            raise ValueError("robust is a loss of its own: remove focal, label_smoothing and ordered")
        if self.focal and self.label_smoothing:
            raise ValueError(
                "focal and label_smoothing cannot be combined: both change the loss. Remove one of the two"
            )
        if self.ordered and (self.focal or self.label_smoothing):
            raise ValueError("ordered has its own loss: remove focal and label_smoothing")
        if len({*self.ordered}) < len(self.ordered):
            raise ValueError(f"ordered = {', '.join(self.ordered)} names a label twice")
        if self.label_columns and (self.label or self.confidence):
            raise ValueError("label_columns has the probability of each label: remove label and confidence")
        if self.ordered and self.labels not in ((), self.ordered):
            raise ValueError(f"labels = {', '.join(self.labels)} differs from ordered: remove labels")

    @property
    def criterion(self) -> str:
        """Return the data set's metric: accuracy or F1, or macro F1 if rare classes are to count equally."""
        if self.positive:
            return "f1"
        if self.ordered:
            return "kappa"
        return "macro_f1" if self.class_weights == "balanced" else "accuracy"

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels

    @property
    def doubts_labels(self) -> bool:
        return self.robust > 0 and self.targets != "soft"  # uncertain labels say themselves how sure they are

    def value(self, text: str) -> str:
        return self.spellings.get(text, text)

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task with the labels' names, and their weights in the loss.

        Raises UserError if all rows have one class, and if weights do not match the labels.
        """
        soft = [record.probabilities for record in records if isinstance(record, SoftRecord)]
        certain = Counter(record.label for record in records if not isinstance(record, SoftRecord))
        names = {*certain, *(label for probabilities in soft for label in probabilities)}
        if len(names) == 1:
            raise UserError(
                f"every training row has the label '{list_labels([*names])}'; a classifier needs two or more. Add "
                "rows with other labels, or name the right column with --label.",
                code="nothing-to-learn",
            )
        labels = self.labels or self.ordered or tuple(sorted(names))
        counts = np.array([certain[label] for label in labels], np.float64)
        for probabilities in soft:
            counts += spread(probabilities, labels)
        balanced = len(records) / (len(labels) * np.maximum(counts, 1))
        weights = label_weights(self.class_weights, self.weights, labels, balanced.tolist())
        targets = "soft" if self.targets == "auto" and soft else self.targets
        return dataclasses.replace(self, labels=labels, weights=weights, targets=targets)

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        """Report each label that was not seen in training; nothing if the training rows could not be read."""
        if not self.labels:
            return
        for record in records:
            for label in () if record.label is None else _distribution(record.target):
                if label not in self.index_of:
                    note_unknown(label, self.labels, location=record.place, problems=problems)

    def target(self, label: str | Distribution) -> tuple[Any, Any]:
        """Return the label's number, and its weight; of soft targets the probability (K,) and weight of each label."""
        if self.targets == "soft":
            probabilities = spread(_distribution(label), self.labels)
            return probabilities.astype(np.float32), probabilities * (self.weights or 1.0)
        number = self.index_of[label if isinstance(label, str) else likeliest_label(label)]
        return np.int64(number), self.weights[number] if self.weights else None

    def head(self, backbone: Backbone) -> Head:
        if self.features != "none":
            return self.head_on_features(backbone)
        from osbert.models.heads.contrastive import ApartHead
        from osbert.models.heads.predictions import (
            OrdersHead,
            SequenceHead,
            classification_loss,
            ordinal_loss,
            soft_loss,
        )

        rate = backbone.architecture.dropout
        labels, orders = len(self.labels), 1 + self.both_orders
        head: SequenceHead
        if self.apart:
            head = ApartHead(backbone, target=self.name, labels=labels, dropout=rate)
        else:
            head = OrdersHead(backbone, target=self.name, labels=labels, dropout=rate, orders=orders)
        loss: dict[str, Any] = {"smoothing": self.label_smoothing, "gamma": self.focal, "robust": self.robust}
        if self.targets == "soft":
            head.stride = labels
            head.loss = partial(soft_loss, **loss, ordered=bool(self.ordered))
        elif self.ordered:
            head.loss = ordinal_loss
        else:
            head.loss = partial(classification_loss, **loss)
        return head

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> Prediction:
        """Return the most probable label and the softmax over all, from the mean logits of a record's windows.

        The layer is linear, so this equals its output for the windows' mean state. A pair in both orders has the sum of
        two logits. The softmax has the task's temperature.
        """
        scores = np.asarray(self.join_outputs(outputs, axis=0, dtype=np.float64))
        probabilities = by_label(self.index_of, softmax(scores, self.temperature))
        return Prediction(value=self.labels[int(scores.argmax())], probabilities=probabilities)

    def explain(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the logit of the predicted label, or of `label`, minus the mean of the others."""
        chosen = require_label(label or prediction.value, self.labels)
        weights = contrast(self.index_of[chosen], len(self.labels))
        return [ExplainedScore(label=chosen, weights=self.split_weights(weights, examples))]

    def tune(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        fitted, calibration = fit_temperature(self.temperature, predictions, records, weighed=self.weighed)
        return dataclasses.replace(self, temperature=fitted), calibration

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return accuracy, macro F1, Matthews correlation, and the F1 of each class ("f1/label").

        A class that is neither in the labels nor in the predictions has no F1, and the macro F1 is the mean over the
        others, as in scikit-learn. "f1" is the F1 of the positive class, 0 if absent. Ordered labels also have the
        quadratic kappa, and the mean distance of predictions from labels.
        """
        numbers = [
            (self.index_of.get(r.label, -1), self.index_of.get(p.value, -1)) for p, r in zip(predictions, records)
        ]
        pairs = np.array(numbers, np.int64).reshape(-1, 2)
        pairs = pairs[(pairs >= 0).all(axis=1)]  # others are not counted, as in scikit-learn
        # Sums of a confusion table that is not made: for 10,000 labels it would take 800 MB.
        right = pairs[pairs[:, 0] == pairs[:, 1], 0]
        hits, true, predicted = (np.bincount(part, minlength=len(self.labels)) for part in (right, *pairs.T))
        classes = {
            f"f1/{label}": 2 * hit / count
            for label, hit, count in zip(self.labels, hits.tolist(), (true + predicted).tolist())
            if count
        }
        ordinal_scores = {}
        if self.ordered:
            table = confusion([p.value for p in predictions], [r.label for r in records], self.labels)
            ordinal_scores = {"kappa": kappa(table), "distance": distance(table)}
        return {
            **({"f1": classes.get(f"f1/{self.positive}", 0.0)} if self.positive else {}),
            **ordinal_scores,
            "accuracy": float(hits.sum() / len(pairs)),
            "macro_f1": float(np.mean(list(classes.values()))),
            "matthews": matthews(len(right), true.astype(float), predicted.astype(float)),
            **classes,
        }

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        return {"label": prediction.value, **reply_fields(prediction.probabilities)}

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> tuple[Self, tuple[int, ...]]:
        return cls(labels=tuple(labels), temperature=1.0), ()

    def export_metadata(self) -> dict[str, Any]:
        return {"labels": self.labels, "scale": 1 / (self.temperature or 1)}


def _distribution(target: str | Distribution) -> Distribution:
    """Return the probabilities of a label: those that are given, or 1 for the only one."""
    return {target: 1.0} if isinstance(target, str) else target


def confusion(predicted: Sequence[Any], true: Sequence[Any], labels: Sequence[str]) -> NDArray[np.int64]:
    """Return the confusion table (K, K): number of records by true label (row) and predicted label (column)."""
    numbers = {label: number for number, label in enumerate(labels)}
    table = np.zeros((len(labels), len(labels)), np.int64)
    for (row, column), count in Counter(zip(true, predicted)).items():
        if row in numbers and column in numbers:  # others are not counted, as in scikit-learn
            table[numbers[row], numbers[column]] = count
    return table


def distance(table: NDArray[np.int64]) -> float:
    """Return the mean distance of labels (row) and predictions (column) in ranks, from a confusion table (K, K)."""
    return float((table * np.sqrt(_squares(len(table)))).sum() / table.sum())


def kappa(table: NDArray[np.int64]) -> float:
    """Return the quadratic kappa of a confusion table (K, K) (Cohen 1968); 0 if there is only one class.

    >>> kappa(np.array([[2, 0], [0, 2]])), kappa(np.array([[0, 2], [2, 0]]))
    (1.0, -1.0)
    """
    # The expected table of independent labels and predictions with the same frequencies.
    chance = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    expected = float((_squares(len(table)) * chance).sum())
    return 1 - float((_squares(len(table)) * table).sum()) / expected if expected else 0.0


def _squares(labels: int) -> NDArray[np.int64]:
    """Return the squared differences of the labels' ranks (K, K)."""
    ranks = np.arange(labels, dtype=np.int64)
    return np.square(ranks[:, None] - ranks)


def matthews(right: int, true: NDArray[np.float64], predicted_counts: NDArray[np.float64]) -> float:
    """Return the Matthews correlation R_K (Gorodkin 2004); 0 if there is one class.

    `right`: the number of correct predictions. `true`, `predicted_counts` (K,): how often each class is true, and
    predicted.
    """
    n = float(true.sum())
    # The multi-class form: covariances of the one-hot labels and predictions, times n squared.
    spread = float(np.sqrt((n * n - true @ true) * (n * n - predicted_counts @ predicted_counts)))
    return (n * right - float(true @ predicted_counts)) / spread if spread > 0 else 0.0
