"""choose: one of two or more texts that goes best with a context; a softmax over the choices (SWAG, section 4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Target
from osbert.data.long_texts import Long, lay_out_behind
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.reading.splits import find_named
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Prediction, Record, Source, Task
from osbert.tasks.calibration.tempered import TemperedTask
from osbert.tasks.edges import Edge
from osbert.tasks.explained import ExplainedScore, contrast, require_label
from osbert.tasks.kinds.choose.columns import HEADINGS, ChoiceColumns, choose, record_of, texts_of
from osbert.tasks.kinds.choose.labels import ChoiceLabel, counting_of
from osbert.tasks.kinds.choose.records import ChoicePrediction, Choices, Counting, names
from osbert.tasks.outcome import SIDES, RecordOutcome, TextMark
from osbert.tasks.record import Probability
from osbert.tasks.tables import TableSource
from osbert.tasks.tables.cut import CutTask

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


class ChoiceSource(TableSource):
    """Reads tables with a context, choices and the right one of them."""

    task: Choose

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the file of each split."""
        return find_named(data)

    @property
    def named(self) -> tuple[str, ...]:
        """Return the columns that the user named, and the usual names."""
        task = self.task
        return (*task.context, *task.choices, task.prefix, task.label, *HEADINGS)

    def columns(self, table: Table, *, labelled: bool) -> ChoiceColumns:
        """Return the columns to read; without `labelled` the label may be absent."""
        task = self.task
        user_columns = ChoiceColumns(context=task.context, choices=task.choices, prefix=task.prefix, label=task.label)
        return choose(table.columns, user_columns=user_columns, path=table.called, labelled=labelled)

    def resolve(self) -> Task:
        """Return the task with the detected columns of its training file and the names of choices."""
        table = self.open(self.file("train"))
        columns = self.columns(table, labelled=True)
        counting = self.task.counting if self.task.counting != "auto" else _counting(table, columns)
        return self.attach_to(replace(self.task, **asdict(columns), counting=counting))

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data, a file or a folder; columns that the file lacks are detected again."""
        task = super().switch_data(data, given)
        source = task.source
        assert isinstance(source, ChoiceSource)
        if source.alone is None:
            return task
        columns = {*source.open(source.alone).columns}
        lost: dict[str, Any] = {
            name: () for name in ("context", "choices") if name not in given and not {*getattr(task, name)} <= columns
        }
        lost |= {name: "" for name in ("prefix", "label") if name not in given and getattr(task, name) not in columns}
        return source.attach_to(replace(task, **lost))

    def record(self, row: Row, columns: ChoiceColumns, *, path: str = "") -> Choices:
        """Return the record of a row. Raises ValueError with the reason if its choices or label are unusable."""
        return record_of(row, columns, counting=self.task.first, path=path)


@dataclass(frozen=True, kw_only=True)
class Choose(TemperedTask, CutTask):
    """A context, two or more choices, and the right one. Rows may have different numbers of choices.

    A choice is the second text, after the context. The label is the number of the right choice, from 0 or from 1
    depending on the file; a letter; or the text of the choice.
    """

    form = "choice"
    edge = Edge(kind="choose", call="predict")
    published_outputs = 1
    reads_rows = True
    reader: ClassVar[type[Source]] = ChoiceSource
    batching: ClassVar[Literal["sequences", "records", "step"]] = "records"
    sample: ClassVar[str] = '"a context" "one way to go on" "another"'
    too_long: ClassVar[str] = (
        "{count:,} pieces of the context and its choices more than fit into {length} tokens. Shorten them, or give "
        "--long truncate or head+tail."
    )

    context: tuple[str, ...] = ()
    """The column with the context, or several, which are joined; detected by its name if not given."""
    choices: tuple[str, ...] = ()
    """The columns with the choices, or one with a list of them; detected by their names if not given."""
    prefix: str = ""
    """A column with text that precedes each choice, such as the beginning of a sentence."""
    label: str = ""
    """The column with the right choice; detected by its name if not given."""
    counting: Literal["auto", "0", "1", "A", "text"] = "auto"
    """The label of the first choice, or text if labels are texts of choices; auto detects it from the training rows."""
    long: Long = "truncate"
    """What happens if a context and a choice do not fit together: truncate keeps the beginning of both; head+tail keeps
    a quarter from the beginning of a long text and the rest from its end; error rejects them."""

    def __post_init__(self) -> None:
        """Raise ValueError for windows, over which a softmax over choices is not defined."""
        super().__post_init__()
        if self.long == "window":
            raise ValueError(
                "long = window is for one text: choices are compared as one sequence each. Give truncate, head+tail or "
                "error"
            )

    @property
    def request_fields(self) -> tuple[str, ...]:
        """Return the columns of a row."""
        prefix = (self.prefix,) if self.prefix else ()
        return (*self.context, *prefix, *self.choices) if self.context and self.choices else ("context", "choices")

    @property
    def criterion(self) -> str:
        """Return "accuracy", the fraction of rows whose right choice scores highest."""
        return "accuracy"

    def remarks(self) -> list[str]:
        """Describe the detected meaning of labels."""
        read = f"the label of the first choice is {self.first}"
        read = "labels are the texts of choices" if self.counting == "text" else read
        return [f"{read} (--counting 0, 1, A or text)"]

    def describe(self, records: Sequence[Record]) -> str:
        """Describe the numbers of rows and of choices of a split."""
        counts = sorted({len(record.texts) - 1 for record in records})
        ways = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}" if counts else "no"
        return f"{len(records):,} rows ({ways} choices each)"

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task unchanged. Raises UserError if every right choice has the same name."""
        labels = {record.label for record in records}
        if len(records) > 1 and len(labels) == 1:
            raise UserError(
                f"every training row has the label '{labels.pop()}'; is it the right column (--label)? If so, shuffle "
                "the choices of each row.",
                code="nothing-to-learn",
            )
        return self

    def record_of(self, texts: Sequence[str]) -> Choices:
        """Return the record of a context and its choices. Raises UserError for fewer than two choices."""
        if len(texts) < 3:
            raise UserError(
                f"The run chooses: give a context and two choices or more, not {len(texts)} text(s).",
                code="wrong-number-of-texts",
            )
        return Choices(number=0, texts=tuple(texts), names=names(len(texts) - 1, self.first))

    def row(self, values: Mapping[str, Any], *, where: str) -> Choices:
        """Return the record of a row by its columns, or of {context, choices: [...]}."""
        context, offered = values.get("context"), values.get("choices")
        if isinstance(context, str) and isinstance(offered, list) and len(values) == 2:
            return self.record_of((context, *offered))
        cells = {name: value if isinstance(value, str) else "" for name, value in values.items()}
        columns = ChoiceColumns(context=self.context, choices=self.choices, prefix=self.prefix)
        if not (columns.context and columns.choices):
            columns = replace(choose(tuple(values), user_columns=columns, path=where, labelled=False), label="")
        return record_of(Row(line=0, values=cells, source=dict(values)), columns, counting=self.first, path="")

    # The model.

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return a sequence for each choice; the right one alone has a target, its number."""
        context, *choices = map(packer.run, record.texts)
        examples = lay_out_behind(context, choices, packer, long=self.long, record=record.number)
        if record.label is not None:
            right = _names(record, self.first).index(record.label)
            target = Target(labels=np.array([right], np.int64))
            examples[right] = replace(examples[right], targets={self.name: target})
        return examples

    def head(self, backbone: Backbone) -> Head:
        """Return a vector whose product with the pooled state scores a choice."""
        from osbert.models.heads.grouped import ChoiceHead

        return ChoiceHead(backbone, target=self.name, dropout=backbone.architecture.dropout)

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> ChoicePrediction:
        """Return the most probable choice and the softmax over all, at the task's temperature."""
        scores = np.array([output[0] for output in outputs], np.float64)
        probabilities = self.softmax(scores)
        called, best = _names(record, self.first), int(scores.argmax())
        return ChoicePrediction(
            value=called[best],
            choice=record.texts[1 + best],
            choices=record.texts[1:],
            probabilities=dict(zip(called, probabilities.tolist())),
        )

    def explain(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the score of the predicted choice, or of the choice named `label`, minus the mean of the others."""
        called = _names(record, self.first)
        chosen = called.index(require_label(label or prediction.value, called))
        weights = [np.array([weight]) for weight in contrast(chosen, len(called))]
        return [ExplainedScore(label=called[chosen], text=record.texts[1 + chosen], weights=weights)]

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the fraction of records whose predicted choice is the labelled one."""
        hits = [prediction.value == record.label for prediction, record in zip(predictions, records, strict=True)]
        return {"accuracy": float(np.mean(hits))}

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the outcome by the choices' names, with the right and the chosen text marked."""
        plain_outcome, called = super().outcome(prediction, record), _names(record, self.first)
        # Text 0 is the context: choice i is text 1 + i.
        texts = [1 + called.index(name) for name in (record.label, prediction.value)]
        marks = [TextMark(start=0, end=len(record.texts[text]), of=of, text=text) for of, text in zip(SIDES, texts)]
        return replace(plain_outcome, marks=tuple(marks))

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
        """Return the choice by name and text, its probability, and how much was not read."""
        headings = ("prediction", "choice", "probability", "truncated")
        if not isinstance(prediction, ChoicePrediction):
            return dict.fromkeys(headings, "")
        probability = Probability(max(prediction.probabilities.values()))
        return dict(zip(headings, (prediction.value, prediction.choice, probability, prediction.truncated)))

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        """Return the number of the choice, from 0, and the probabilities of all in their order."""
        probabilities = prediction.probabilities
        # The dict of probabilities has the choices in the order of the request.
        return {"choice": list(probabilities).index(prediction.value), "probabilities": list(probabilities.values())}

    @property
    def first(self) -> Counting:
        """Return the name of the first choice."""
        return "0" if self.counting == "auto" else self.counting


def _names(record: Record, counting: Counting) -> tuple[str, ...]:
    return record.names if isinstance(record, Choices) else names(len(record.texts) - 1, counting)


def _counting(table: Table, columns: ChoiceColumns) -> Counting:
    """Return the meaning of a file's labels; unreadable rows are reported later."""
    rows = []
    for row in table.rows(Problems(heading="")):
        try:
            choices, called = texts_of(row, columns)
        except (ValueError, KeyError):
            continue
        label, location = row.values.get(columns.label, ""), table.place(row.line)
        rows.append(ChoiceLabel(label=label, choices=choices, called=called, location=location))
    return counting_of(rows)
