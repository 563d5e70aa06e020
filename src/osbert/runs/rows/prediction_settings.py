"""What an output of predictions holds beside the input's columns, and in which form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from osbert.errors import UserError
from osbert.runs.rows.forms.contract import RowResult
from osbert.tasks import Prediction, Task
from osbert.tasks.probabilities import LABELS, LIKELIEST
from osbert.tasks.record import OF_LABEL, Probability


def labels_of(task: Task) -> tuple[str, ...]:
    """Return the labels whose probabilities can be columns of a table of predictions."""
    return task.classes if task.form == "sequence" and task.values in ("classes", "labels") else ()


@dataclass(frozen=True, kw_only=True)
class PredictionColumns:
    """What is written about each row."""

    top_k: int = 0
    """Columns with so many of the likeliest values and their probabilities, instead of the probability of each label;
    0 for none."""
    probabilities: bool | None = None
    """The probability of each label in a column of its own; left open: yes without --top-k, and up to 100 labels. Of
    more, the 10 likeliest are written."""
    abstain: float = 0.0
    """Leave the prediction empty where its probability is below this, such as 0.6, and count in the column `abstained`
    how many answers that takes away; entities and labels of several are left out one by one. 0 for never."""

    def check(self) -> None:
        """Raise UserError at numbers that cannot be."""
        if self.top_k < 0:
            raise UserError(f"--top-k must be 0 or more, not {self.top_k}.", code="invalid-value")
        if not 0 <= self.abstain <= 1:
            raise UserError(f"--abstain is a probability, from 0 to 1, not {self.abstain:g}.", code="invalid-value")

    def choose(self, labels: int) -> tuple[bool, int]:
        """Return whether the probability of each of so many labels is written, and how many of the likeliest are."""
        if self.probabilities is None and not self.top_k and labels > LABELS:
            return False, LIKELIEST
        return (not self.top_k if self.probabilities is None else self.probabilities), self.top_k

    def left_out(self, task: Task) -> str:
        """Describe what is left out of the output because a task has very many labels; "" if nothing is."""
        labels = len(labels_of(task))
        if self.top_k or not self.choose(labels)[1]:
            return ""
        return f"{labels:,} labels: the {LIKELIEST} likeliest of each row are written; --probabilities writes all."

    def decide(self, prediction: Prediction) -> tuple[Prediction, int]:
        """Return the prediction to write and the number of answers withheld, whose probability is below `abstain`.

        Raises UserError if the prediction lacks the probabilities that the options need.
        """
        if (self.top_k and not prediction.top(1)) or (self.probabilities and not prediction.probabilities):
            raise UserError(
                "This run's predictions have no probabilities. Remove --top-k and --probabilities.",
                code="options-exclude-each-other",
            )
        return prediction.above(self.abstain) if self.abstain else (prediction, 0)

    def cells(self, task: Task, prediction: Prediction | None, withheld: int = 0) -> dict[str, Any]:
        """Return the cells of a table's row, by heading; all empty without a prediction."""
        (first, value), *others = task.cells(prediction).items()
        labels = labels_of(task)
        row_cells = {first: value}
        with_each, count = self.choose(len(labels))
        likeliest = prediction.top(count) if prediction and count else []
        for number in range(1, count + 1):
            label, probability = likeliest[number - 1] if number <= len(likeliest) else ("", None)
            row_cells[f"top {number}"] = label
            row_cells[f"probability {number}"] = "" if probability is None else Probability(probability)
        for label in labels if with_each else ():
            row_cells[f"{OF_LABEL}{label}"] = Probability(prediction.probabilities[label]) if prediction else ""
        return row_cells | dict(others) | ({"abstained": withheld if prediction else ""} if self.abstain else {})

    def fields(self, prediction: Prediction | None, withheld: int = 0) -> dict[str, Any]:
        """Return the fields of a JSON object; all null without a prediction."""
        with_each, count = self.choose(len(prediction.probabilities) if prediction else 0)
        whole = prediction or Prediction(value=None)
        # Without the probabilities it is not copied label by label.
        json_fields = (whole if with_each else replace(whole, probabilities={})).as_dict()
        if not with_each:
            json_fields.pop("probabilities", None)
        if count:
            likeliest = prediction.top(count) if prediction else []
            json_fields["top"] = [
                {"value": value, "probability": probability} for value, probability in likeliest
            ] or None
        return json_fields | ({"abstained": withheld if prediction else None} if self.abstain else {})


@dataclass(frozen=True, kw_only=True)
class WrittenPrediction(RowResult):
    """A prediction in the columns that the user chose; None for a row without text."""

    task: Task
    columns: PredictionColumns
    prediction: Prediction | None = None
    withheld: int = 0

    def cells(self) -> Mapping[str, Any]:
        return self.columns.cells(self.task, self.prediction, self.withheld)

    def fields(self) -> Mapping[str, Any]:
        return self.columns.fields(self.prediction, self.withheld)


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(PredictionColumns):
    """What is written about each row, and the forms in which rows are read and written."""

    form: str = ""
    """What standard input holds: csv, tsv, jsonl, json, txt or parquet; detected if not given."""
    out_form: str = ""
    """The format of the output: csv, tsv, jsonl, json, parquet, xlsx or markdown; by default the ending of --out."""
    spreadsheet_safe: bool = False
    """Write an apostrophe before each cell of a CSV or TSV that a spreadsheet may take for a formula: one that begins
    with = + - @ (full-width ones and those behind blanks too), a tab or a line end, and is not a number."""
