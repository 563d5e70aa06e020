"""multilabel: any number of K labels, or none, for a text or a pair of texts; one sigmoid per label."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example
from osbert.data.pack import Packer as Packer
from osbert.errors import Problems, UserError
from osbert.reading.columns import TextColumns
from osbert.reading.splits import hold_out_known
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Description, Prediction, Record, Source, Task
from osbert.tasks.calibration import Calibration
from osbert.tasks.edges import Edge, ExplainedScore, require_label
from osbert.tasks.features import FeatureTask
from osbert.tasks.kinds.multilabel.columns import (
    LabelColumns,
    LabelSearch,
    binary_columns,
    cell_labels,
    check_probabilities,
    flag_probabilities,
    join_labels,
    likely_names,
    parse_nested_labels,
)
from osbert.tasks.kinds.multilabel.prediction import (
    USUAL,
    LabelsPrediction,
    best_threshold,
    label_scores,
    label_thresholds,
    matrix,
)
from osbert.tasks.probabilities import as_array, by_label, reply_fields
from osbert.tasks.record import UNPAIRED, RecordOutcome
from osbert.tasks.tables import TableDescription, UnlabelledRow, require_cells, row_texts
from osbert.tasks.tables.classes import (
    check_weights,
    describe_joined,
    label_weights,
    list_counts,
    list_labels,
    note_unknown,
    parse_object,
)
from osbert.tasks.tables.soft_labels import SoftRecord
from osbert.tasks.tables.texts import TextSource, TextTask
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

SHOWN = 100
"""Most labels whose table is shown."""


class MultilabelSource(TextSource):
    """Reads tables with a text, or a pair, and labels: in one column, or in a column of 0 and 1 for each."""

    task: Multilabel
    forms = (("label",), ("label_columns",))
    indivisible: ClassVar[str] = "each row has a label that no other row has"

    def columns(self, table: Table, *, labelled: bool) -> LabelColumns:
        task = self.task
        user_columns = TextColumns(text=task.text, pair=task.pair, label=task.label)
        search = LabelSearch(
            user_columns=user_columns, flags=task.label_columns, separator=task.separator, labels=task.labels
        )
        return search.columns(table, labelled=labelled)

    def resolve(self) -> Task:
        """Return the task with the detected columns and separator of its training file.

        Columns of 0 and 1 are the labels, in their order, unless these are given.
        """
        columns = self.columns(self.open(self.file("train")), labelled=True)
        named = dataclasses.replace(
            self.task,
            text=columns.text,
            pair=columns.pair,
            label="" if columns.flags else columns.label,
            label_columns=columns.flags,
            separator=columns.separator,
            labels=self.task.labels or columns.flags,
        )
        return self.attach_to(named)

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data, whose labels may be written in another way."""
        return super().switch_data(data, {"label_columns": ()} | dict(given))

    def left_out(self, split: str) -> list[str]:
        """Return also lines about labels without a column, and columns that may be those of unknown labels."""
        lines = super().left_out(split)
        for origin in self.split_origins(split).values():
            table = self.open(origin)
            columns = self.columns(table, labelled=True)
            if columns.flags and (absent := [label for label in self.task.labels if label not in columns.flags]):
                lines.append(f"{table.called} has no column for {list_labels(absent)}: its rows count as rows without")
            if columns.flags and (unread := binary_columns(table, but=(*columns.texts, *columns.flags))):
                names = ", ".join(map(repr, unread))
                lines.append(f"columns of 0 and 1 of {table.called} that are none of the labels are not read: {names}")
        return lines

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return which of the training rows (n,) are held out; training keeps at least one row of each label."""
        return hold_out_known([record.label for record in records], self.task.held_out)

    def record(self, row: Row, columns: TextColumns, *, path: str = "") -> Record:
        assert isinstance(columns, LabelColumns)
        texts = row_texts(row, columns.texts)
        require_cells(row, (), labels=columns.sources)
        label = self._labels(row, columns) if columns.label else None
        if isinstance(label, dict):
            return SoftRecord(
                number=0, texts=texts, label=likely_names(label), path=path, line=row.line, probabilities=label
            )
        return Record(number=0, texts=texts, label=label, path=path, line=row.line)

    def _labels(self, row: Row, columns: LabelColumns) -> tuple[str, ...] | dict[str, float]:
        """Return the labels of a row, or a probability for each if they are uncertain."""
        if all(name in row.nulls for name in columns.sources):
            raise UnlabelledRow("the labels are null; a row without a label has an empty list, or an empty text")
        if columns.flags:
            if not any(row.values[name].strip() for name in columns.flags):
                raise UnlabelledRow("the columns of the labels are empty; a row without a label has 0 in each")
            probabilities = flag_probabilities(row.values, columns.flags)
            return probabilities if {*probabilities.values()} - {0, 1} else likely_names(probabilities)
        cell = row.values[columns.label]
        if (numbers := parse_object(cell.strip())) is not None:
            return check_probabilities(numbers)
        return parse_nested_labels(cell) if columns.label in row.nested else cell_labels(cell, columns.separator)


SPREAD = 0.05
"""A model has learnt nothing if no label's probability differs by more between any two rows."""


class LabelsDescription(TableDescription):
    """Describes texts with any number of labels each."""

    task: Multilabel

    def warnings(self) -> list[str]:
        return describe_joined(self.task.labels, "give the sign that separates them with --separator.")

    def describe_split(self, records: Sequence[Record]) -> str:
        counts = Counter(label for record in records for label in record.label or ())
        without = sum(not record.label for record in records)
        return f"{format_count(len(records), 'row')} ({list_counts(counts, 'more labels')}; {without:,} without)"

    def only_answer(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> str:
        """Return an answer also if values differ only because thresholds lie between nearly equal probabilities."""
        probabilities = self.task.probability_matrix(predictions)
        if bool((np.ptp(probabilities, axis=0) < SPREAD).all()):
            return "given nearly the same probability of each label"
        return super().only_answer(predictions, records)

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[list[str]]:
        if len(self.task.labels) > SHOWN:
            return []
        predicted_flags = matrix([prediction.value for prediction in predictions], self.task.labels)
        true = matrix([record.label for record in records], self.task.labels)
        counts = np.stack(
            [true.sum(axis=0), predicted_flags.sum(axis=0), (predicted_flags & true).sum(axis=0)], axis=1
        ).tolist()
        rows = [
            [label, f"{threshold:.3f}", *(f"{count:,}" for count in line)]
            for label, threshold, line in zip(self.task.labels, self.task.decisive, counts)
        ]
        return [["label", "threshold", "true", "predicted", "both"], *rows]


@dataclass(frozen=True, kw_only=True)
class Multilabel(FeatureTask, TextTask):
    """Texts or pairs with any number of labels each. The labels are learnt from the training rows, in sorted order."""

    values = "labels"
    reader: ClassVar[type[Source]] = MultilabelSource
    describer: ClassVar[type[Description]] = LabelsDescription
    edge = Edge(kind="multilabel", call="predict")
    row_score: ClassVar[str] = "subset accuracy"
    published_outputs = 0

    class_weights: str = "none"
    """balanced: all classes have the same total weight in the loss; or weights by label, spam=3,ham=0.5, and 1 for
    other labels. With multilabel this is the weight of the rows that have a label; balanced gives them the same total
    weight as the rows without it."""
    weights: tuple[float, ...] = ()
    """The weight of each label in the loss; computed or completed if class_weights is given."""
    labels: tuple[str, ...] = ()
    """The labels' names, in the order of the outputs; learnt from the training rows if not given."""
    separator: str = ""
    """The separator between labels in a cell: detected (; or | or a comma) if not given; none if each cell holds one.
    Lists (JSON) need none."""
    label_columns: tuple[str, ...] = ()
    """Columns named like the labels, 1 if a row has the label, else 0; detected if all columns but the text are of that
    kind and no column holds labels."""
    threshold: str = "global"
    """Least probability of a predicted label: global, one for all labels, with the highest micro F1 on the development
    rows; per-label, one for each, with the label's highest F1; or a number, such as 0.5."""
    thresholds: tuple[float, ...] = ()
    """The thresholds, one for each label; tuned on the development rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights(self.class_weights, self.weights)
        self._number()
        if self.label and self.label_columns:
            raise ValueError(
                "label (one column with all labels) and label_columns (one for each) exclude each other: remove one"
            )
        if self.thresholds and self.labels and len(self.thresholds) != len(self.labels):
            raise ValueError(f"thresholds has {len(self.thresholds)} numbers, but there are {len(self.labels)} labels")

    def _number(self) -> float | None:
        """Return the threshold that was given as a number, None if it is to be tuned. Raises ValueError otherwise."""
        if self.threshold in ("global", "per-label"):
            return None
        try:
            number = float(self.threshold)
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1:
            raise ValueError(f"threshold is global, per-label or a probability from 0 to 1, not '{self.threshold}'")
        return number

    @property
    def criterion(self) -> str:
        """Return the metric that thresholds are tuned for: micro F1, or macro F1 if each label has its own."""
        return "macro_f1" if self.threshold == "per-label" else "micro_f1"

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels

    @cached_property
    def index_of(self) -> dict[str, int]:
        """The index of each label among the outputs."""
        return {label: index for index, label in enumerate(self.labels)}

    @property
    def decisive(self) -> tuple[float, ...]:
        """Return the thresholds in use: the tuned ones, or the number that was given, or 0.5."""
        number = self._number()
        return self.thresholds or (USUAL if number is None else number,) * len(self.labels)

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task with the labels' names, and the weights of the rows that have them in the loss.

        Raises UserError if all rows have the same labels, if weights do not match the labels, and if thresholds are
        given, which are tuned in training.
        """
        if self.thresholds:
            raise UserError(
                "--thresholds cannot be set: they are tuned on the development rows. Give --threshold: global, "
                "per-label, or a number for all labels.",
                code="invalid-setting",
            )
        targets = [record.target for record in records]
        if all(target == targets[0] for target in targets):
            label_names = list_labels([*records[0].label])
            raise UserError(
                "every training row has "
                f"{f'the labels {label_names}' if label_names else 'no label'}: there is nothing to learn. Add "
                "others, or name the right column with --label (or --label-columns).",
                code="nothing-to-learn",
            )
        labels = self.labels or tuple(sorted({label for target in targets for label in target}))
        # (K,): the number of rows that have each label.
        true = matrix([record.label for record in records], labels).sum(axis=0)
        # Rows without the label / rows with it: both then have the same total weight. At least 1, so that no weight
        # is 0 or infinite.
        balanced = np.maximum(len(records) - true, 1) / np.maximum(true, 1)
        return dataclasses.replace(
            self, labels=labels, weights=label_weights(self.class_weights, self.weights, labels, balanced.tolist())
        )

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        if not self.labels:
            return
        known = {*self.labels}
        for record in records:
            for label in (name for name in record.target or () if name not in known):
                note_unknown(label, self.labels, location=record.place, problems=problems)

    def target(self, label: tuple[str, ...] | Mapping[str, float]) -> tuple[Any, Any]:
        """Return for each label (K,) 1 if it is among these, else 0, or its probability; and the weights (K,)."""
        if not isinstance(label, tuple):
            soft = np.array([label.get(name, 0.0) for name in self.labels])
            weights = soft * self.weights + (1 - soft) if self.weights else None
            return soft.astype(np.float32), weights
        flags = matrix([label], self.labels)[0]
        return flags.astype(np.int64), np.where(flags, self.weights, 1.0) if self.weights else None

    def head(self, backbone: Backbone) -> Head:
        if self.features != "none":
            return self.head_on_features(backbone)
        from osbert.models.heads.predictions import LabelsHead

        rate = backbone.architecture.dropout
        return LabelsHead(backbone, target=self.name, labels=len(self.labels), dropout=rate)

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> LabelsPrediction:
        """Return the labels that reach their thresholds, by the sigmoid of the mean scores of a record's windows."""
        scores = np.asarray(np.mean(outputs, axis=0, dtype=np.float64))
        probabilities = np.exp(-np.logaddexp(0.0, -scores))  # the sigmoid, without overflow
        prediction = LabelsPrediction(value=(), probabilities=by_label(self.index_of, probabilities))
        return prediction.apply_thresholds(self.decisive)

    def explain(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the logits of the predicted labels (if none, of the most probable one), or that of `label`."""
        chosen = [require_label(label, self.labels)] if label else list(prediction.value)
        chosen = chosen or [max(self.labels, key=prediction.probabilities.__getitem__)]
        # A mean over windows: each window's logit of the label has weight 1 / windows.
        rows = [np.eye(len(self.labels))[self.labels.index(name)] / len(examples) for name in chosen]
        return [ExplainedScore(label=name, weights=[row] * len(examples)) for name, row in zip(chosen, rows)]

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        predicted_flags = matrix([prediction.value for prediction in predictions], self.labels)
        true = matrix([record.label for record in records], self.labels)
        return label_scores(predicted_flags, true, self.probability_matrix(predictions), self.labels)

    def tune(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        """Return the task with its thresholds: those of the highest F1 on the records, unless a number was given."""
        number = self._number()
        true = matrix([record.label for record in records], self.labels)
        if number is not None:
            thresholds = (number,) * len(self.labels)
        elif self.threshold == "per-label":
            thresholds = label_thresholds(true, self.probability_matrix(predictions))
        else:
            thresholds = (best_threshold(true, self.probability_matrix(predictions)),) * len(self.labels)
        return dataclasses.replace(self, thresholds=thresholds), None

    def at_best(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[Prediction]:
        """Return the predictions at the thresholds with the highest F1 on these records."""
        thresholds = self.tune(predictions, records)[0].thresholds
        return [
            prediction.apply_thresholds(thresholds) if isinstance(prediction, LabelsPrediction) else prediction
            for prediction in predictions
        ]

    def names(self, record: Record) -> tuple[str, ...]:
        return tuple(record.label or ())

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the outcome of a record: right if exactly its labels are predicted.

        Its error is the largest error of the probabilities of wrongly predicted or missed labels. Its confidence is the
        probability of the least certain decision on a label.
        """
        given, true = {*prediction.value}, {*record.label}
        errors = (abs((name in true) - prediction.probabilities.get(name, 0.0)) for name in given ^ true)
        beliefs = tuple((probability, name in true) for name, probability in prediction.probabilities.items())
        sure = [
            probability if name in given else 1 - probability for name, probability in prediction.probabilities.items()
        ]
        return RecordOutcome(
            truth=", ".join(record.label) or "(no label)",
            guess=", ".join(prediction.value) or "(no label)",
            score=float(given == true),
            right=given == true,
            error=max(errors, default=0.0),
            confidence=min(sure, default=None),
            pairs=tuple(
                (name if name in true else UNPAIRED, name if name in given else UNPAIRED)
                for name in sorted(given | true)
            ),
            beliefs=beliefs,
        )

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
        if prediction is None:
            return super().cells(None)
        return super().cells(prediction) | {"prediction": join_labels(prediction.value, self.separator or ";")}

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        return {"labels": list(prediction.value), **reply_fields(prediction.probabilities, keep=prediction.value)}

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> tuple[Self, tuple[int, ...]]:
        return cls(labels=tuple(labels), threshold=f"{USUAL}"), ()

    def export_metadata(self) -> dict[str, Any]:
        return {"labels": self.labels}

    def probability_matrix(self, predictions: Sequence[Prediction]) -> NDArray[np.float64]:
        """Return the probabilities of the labels, (n, K)."""
        rows = [
            as_array(prediction.probabilities)
            if tuple(prediction.probabilities) == self.labels
            else [prediction.probabilities.get(label, 0.0) for label in self.labels]
            for prediction in predictions
        ]
        return np.array(rows, np.float64).reshape(len(predictions), len(self.labels))
