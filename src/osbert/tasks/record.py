"""Records, the input of a task; Predictions, its output, and their outcomes; and Inputs, files of plain input."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from osbert.errors import Problems, UserError
from osbert.reading.table import Row, Table
from osbert.tasks.probabilities import likeliest, likely_labels
from osbert.terminal import one_line

OF_LABEL = "probability of "
"""Prefix of the headings of columns with the probability of one label."""


class Probability(float):
    """A probability in a cell: a float that is formatted with six digits.

    >>> f"{Probability(1 / 3)}", Probability(1 / 3) * 3
    ('0.333333', 1.0)
    """

    def __str__(self) -> str:
        """Format it with six digits."""
        return f"{float(self):.6f}"

    def __format__(self, form: str) -> str:
        """Format it by a specification, by default with six digits."""
        return format(float(self), form or ".6f")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One item of a data set, before tokenization. A kind with more to it than texts and a label has its own subclass.

    `number`: its index in the split. `texts`: its text, or its texts in the order of the model's input. `label`: the
    value to predict, None if unknown. `path` and `line`: its origin, for messages; in memory `line` counts rows, and
    `unit` is "row", or `line` is in the index of a DataFrame, and `unit` is "index". `remark`: a correction or a
    defect, for the run folder's list.
    """

    number: int
    texts: tuple[str, ...]
    label: Any = None
    path: str = ""
    line: int = 0
    unit: str = "line"
    remark: str = ""

    @property
    def place(self) -> str:
        """Return the origin of the record for messages."""
        if not self.line and not self.path and self.unit == "line":
            return f"record {self.number}"
        return f"{self.path}, {self.unit} {self.line}" if self.path else f"{self.unit} {self.line}"

    @property
    def items(self) -> int:
        """Return the number of items of which a step has `--batch`, such as the sentences of a document."""
        return 1

    @property
    def target(self) -> Any:
        """Return what is learnt of its label: the label itself; of an uncertain one the probabilities."""
        return self.label

    @property
    def expected(self) -> Any:
        """Return the label in the form of `Prediction.value`."""
        return self.label


def records_per_step(batch: int, records: Sequence[Record]) -> int:
    """Return the number of training records with about `batch` items in total, at least one."""
    return max(1, round(batch * len(records) / max(sum(record.items for record in records), 1)))


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A task's prediction for a record. Kinds with more output (spans, an n-best list) have a subclass.

    `value`: a label's name, or a number. `probabilities`: of every label by name, if there are labels. `truncated`:
    pieces of the record that did not fit and were not used. `unknown`: whether most pieces of the record are unknown.
    """

    value: Any
    probabilities: Mapping[str, float] = field(default_factory=dict)
    truncated: int = 0
    unknown: bool = False

    @property
    def comparable(self) -> Any:
        """Return the value in the form of `Record.label`: the two are equal if all of the prediction is right."""
        return self.value

    @property
    def unread(self) -> tuple[int, ...]:
        """Return the truncated pieces of each text for which the value has a number, or of all together."""
        return (self.truncated,)

    @property
    def answer(self) -> str:
        """Return the value as text, to follow "every row is"."""
        return repr(self.value)

    @property
    def confidence(self) -> float | None:
        """Return the probability of the value, None if it has none."""
        return max(self.probabilities.values(), default=None)

    @property
    def likeliest(self) -> list[tuple[str, float]]:
        """Return (value, probability) of all possible values, most probable first; [] if they are unknown."""
        return likeliest(self.probabilities, len(self.probabilities))

    def top(self, count: int) -> list[tuple[str, float]]:
        """Return the first `count` of `likeliest`, without sorting the others."""
        return likeliest(self.probabilities, count) if self.probabilities else self.likeliest[:count]

    def above(self, threshold: float) -> tuple[Prediction, int]:
        """Drop answers less probable than a threshold; return the prediction and the number of dropped answers.

        If it has a single answer, the value becomes None. Raises UserError if answers have no probability.

        >>> sure = Prediction(value="pos", probabilities={"pos": 0.7, "neg": 0.3})
        >>> sure.above(0.6)[1], sure.above(0.8)[0].value, sure.above(0.8)[1]
        (0, None, 1)
        """
        if self.confidence is None:
            raise UserError(
                "--abstain needs probabilities, and this run's predictions have none. Remove --abstain.",
                code="options-exclude-each-other",
            )
        return (self, 0) if self.confidence >= threshold else (self.withhold(), 1)

    def withhold(self) -> Prediction:
        """Return the prediction without its single answer."""
        return replace(self, value=None)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON; `value` comes first, as "prediction"."""
        return {
            "prediction": self.value,
            "probabilities": dict(self.probabilities.items()) or None,
            "truncated": self.truncated,
        }

    def lines(self) -> list[str]:
        """Return lines of text: the value, then the probabilities."""
        value = f"{self.value:.4f}" if isinstance(self.value, float) else str(self.value)
        shown = likely_labels(self.probabilities)
        more = len(self.probabilities) - len(shown)
        rest = [f"  {1 - sum(share for _, share in shown):7.2%}  {more:,} more labels in all"] if more else []
        return [value, *(f"  {probability:7.2%}  {label}" for label, probability in shown), *rest]


UNPAIRED = ""
"""The label of the missing side of a pair."""

Side = Literal["truth", "prediction"]
SIDES: tuple[Side, Side] = ("truth", "prediction")
"""The sources of labels: the data and the model."""


@dataclass(frozen=True, kw_only=True)
class TextMark:
    """Characters [start, end) of text number `text` of a record, labelled `name` by `of`."""

    start: int
    end: int
    name: str = ""
    of: Side = "truth"
    text: int = 0


@dataclass(frozen=True, kw_only=True)
class RecordOutcome:
    """The outcome of a task on one record.

    `truth` and `guess`: its label and its prediction as text. `score`: higher is better; the mean over records is the
    metric `Task.row_score`; NaN if the record does not count. `right`: whether all of it is right, None if that makes
    no sense. `error`: the size of the error, 0 if it is right, by which mistakes are ranked. `confidence`: the
    probability of the prediction, None without one.

    `pairs`: true and predicted label of each item, UNPAIRED if one is missing. `beliefs`: probabilities, each with
    whether its event occurred. `numbers`: label and prediction of a task of numbers.
    """

    truth: str
    guess: str
    score: float
    right: bool | None
    error: float
    confidence: float | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    beliefs: tuple[tuple[float, bool], ...] = ()
    numbers: tuple[float, float] | None = None
    marks: tuple[TextMark, ...] = ()


def prediction_error(prediction: Prediction, record: Record) -> float:
    """Return the size of a prediction's error, 0 if it is right.

    1 minus the label's probability, if there is one; the distance of two numbers; 1 for any other mistake.
    """
    if prediction.comparable == record.label:
        return 0.0
    if isinstance(prediction.value, float):
        return abs(prediction.value - record.label)
    return 1 - prediction.probabilities.get(record.label, 0.0) if prediction.probabilities else 1.0


def mean_score(outcomes: Iterable[RecordOutcome]) -> float:
    """Return the mean of the scores that are not NaN; NaN if there are none."""
    scores = [outcome.score for outcome in outcomes if not math.isnan(outcome.score)]
    return sum(scores) / len(scores) if scores else math.nan


def _alone(row: Row, prediction: Prediction | None) -> Iterable[tuple[Row, Prediction | None]]:
    return [(row, prediction)]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A file of plain input for `osbert predict`: its rows in their order, each with its record.

    `describe`: text about the file's form and use. `columns`: of its rows. `lines`: whether JSON lines
    suit its rows better than cells. `key`: the column by which the official form of predictions, one JSON object, names
    a row, by its line where that is empty; "" where there is no such form. `rows(problems)` yields (row, record), None
    for a record without text; an unusable row is reported to `problems` and left out. `table`: the source of the rows,
    if it is a table. `parts`: splits a row into the rows to write, each with its prediction: more than one if several
    rows of the file form one record.
    """

    describe: str
    columns: tuple[str, ...]
    rows: Callable[[Problems], Iterator[tuple[Row, Record | None]]]
    lines: bool = False
    key: str = ""
    table: Table | None = None
    parts: Callable[[Row, Prediction | None], Iterable[tuple[Row, Prediction | None]]] = _alone

    @classmethod
    def of(cls, table: Table, record: Callable[[Row], Record | None], what: str, *, lines: bool) -> Self:
        """Return the rows of a table; `record` makes a record of a row, `what` describes the columns in use.

        `record` returns None for a row without text, and raises ValueError for an unusable row.
        """

        def rows(problems: Problems) -> Iterator[tuple[Row, Record | None]]:
            for row in table.rows(problems):
                try:
                    row_record = record(row)
                except ValueError as error:
                    problems.add(f"{table.place(row.line)}: {one_line(str(error))}.", code="unusable-row")
                else:
                    yield row, row_record

        return cls(describe=f"{table.describe()}; {what}", columns=table.columns, rows=rows, lines=lines, table=table)

    def name_row(self, row: Row) -> str:
        """Return the name of a row in the official form."""
        return row.values.get(self.key) or str(row.line)
