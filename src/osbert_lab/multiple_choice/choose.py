"""choose: one of two or more texts that goes best with a context; a softmax over the choices (SWAG, section 4.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Target
from osbert.data.long_texts import Long, lay_out_behind
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.reading.columns import PASSAGES, ROLES, Header, headings
from osbert.reading.splits import find_named
from osbert.reading.table import Row, Table
from osbert.tasks import Description, Prediction, Record, Source, Task
from osbert.tasks.calibration import Calibration
from osbert.tasks.edges import Edge, ExplainedScore, contrast, require_label
from osbert.tasks.features import FeatureTask
from osbert.tasks.record import SIDES, Probability, RecordOutcome, TextMark
from osbert.tasks.tables import TableDescription, TableSource, TableTask, UnlabelledRow, parse_cell, require_cells
from osbert.tasks.tables.classes import check_temperature, fit_temperature, softmax

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head

__all__ = ["ChoicePrediction", "Choices", "Counting", "names"]

Counting = Literal["0", "1", "A", "text"]
"""The name of the first choice; the others follow. With "text" labels are texts of choices, which count from 0."""


@dataclass(frozen=True, kw_only=True)
class Choices(Record):
    """A context and its choices, which are its `texts`; `label` is the right one's name.

    `names`: the name of each choice.
    """

    names: tuple[str, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the choices, without the context before them."""
        return self.texts[1:]


@dataclass(frozen=True, kw_only=True)
class ChoicePrediction(Prediction):
    """The choice of a model: `value` is the choice's name, `choice` its text, `probabilities` of all by name."""

    choice: str
    choices: tuple[str, ...] = ()

    def withhold(self) -> ChoicePrediction:
        return replace(self, value=None, choice="")

    def as_dict(self) -> dict[str, Any]:
        return {
            "prediction": self.value,
            "choice": self.choice,
            "probabilities": dict(self.probabilities),
            "truncated": self.truncated,
        }

    def lines(self) -> list[str]:
        rows = sorted(zip(self.probabilities.items(), self.choices), key=lambda row: -row[0][1])
        return [str(self.value), *(f"  {probability:7.2%}  {name}  {text}" for (name, probability), text in rows)]


def names(count: int, counting: Counting) -> tuple[str, ...]:
    """Return the names of a number of choices."""
    if counting == "A":
        return tuple(chr(ord("A") + index) for index in range(count))
    first = 0 if counting == "text" else int(counting)
    return tuple(str(index + first) for index in range(count))


DOUBTED = 10
"""Rows from which on labels are refused that may be counted from 0 or 1. Fewer hold some numbers by chance only."""
NAMED: tuple[Counting, ...] = ("0", "1", "A")
"""The ways to count choices by name."""
GIVE = (
    "give --counting text if labels are texts of choices, else the label of the first choice: 0, 1 or A (to score a "
    "run on the file: --columns.counting text)"
)


@dataclass(frozen=True, kw_only=True)
class ChoiceLabel:
    """A row's label and its possible meanings: one of the `choices`, or one of their names `called`, () for none.

    `location`: where it stands, for messages.
    """

    label: str
    choices: Sequence[str]
    called: Sequence[str] = ()
    location: str = ""

    @property
    def text(self) -> int | None:
        """Return the index of the choice with the label as its text, None if there is none or more than one."""
        texts = [choice.strip() for choice in self.choices]
        return texts.index(self.label.strip()) if texts.count(self.label.strip()) == 1 else None

    def find_by_name(self, counting: Counting) -> int | None:
        """Return the index of the choice with the label as its name in a way of counting, None if there is none."""
        called = [*(self.called or names(len(self.choices), counting))]
        matches = [spelling for spelling in (self.label.strip(), self.label.strip().upper()) if spelling in called]
        return called.index(matches[0]) if matches else None

    def differs(self, counting: Counting) -> bool:
        """Return whether the label is the name of one choice and the text of another."""
        return None not in (self.text, self.find_by_name(counting)) and self.text != self.find_by_name(counting)


def choice_index(choice_label: ChoiceLabel, counting: Counting) -> int:
    """Return the index of the choice that a label means, for a file's way of counting.

    Where labels are names one may still be a text, but none that looks like a name: a number beside numbers, a letter
    beside letters. Raises ValueError, saying why, when it means none.
    """
    label = choice_label.label.strip()
    if not label:
        raise UnlabelledRow("the label is empty")
    index = choice_label.text if counting == "text" else choice_label.find_by_name(counting)
    if index is None and counting != "text" and not _like_a_name(label, counting):
        index = choice_label.text
    if index is not None:
        return index
    if counting == "text":
        raise ValueError(f"the label '{label}' is not the text of just one of the {len(choice_label.choices)} choices")
    called = ", ".join(choice_label.called or names(len(choice_label.choices), counting))
    more = ". Write one of these, or remove the row" if choice_label.text is None else f", but the text of one: {GIVE}"
    raise ValueError(f"the label '{label}' is none of the {len(choice_label.choices)} choices ({called}){more}")


def counting_of(rows: Sequence[ChoiceLabel]) -> Counting:
    """Detect the meaning of a file's labels from all of its rows.

    They are texts if each label is the text of a choice in its row, and numbers or letters if each is one of those.
    Raises UserError if both readings fit and disagree, or if neither fits all rows.
    """
    rows = [row for row in rows if row.label.strip()]
    if rows and all(row.text is not None for row in rows):
        fitting = [way for way in NAMED if all(row.find_by_name(way) is not None for row in rows)]
        if not fitting:
            return "text"
        agreeing = [way for way in fitting if not any(row.differs(way) for row in rows)]
        if agreeing:
            return agreeing[0]
        _refuse(rows, fitting[0])
    counting = _first(rows)
    if any(row.find_by_name(counting) is None and row.text is not None for row in rows):
        _refuse(rows, counting)
    return counting


def _refuse(rows: Sequence[ChoiceLabel], counting: Counting) -> None:
    """Raise UserError at a label that is the name of one choice and the text of another, if there is any."""
    wrong = [row for row in rows if row.differs(counting)]
    if not wrong:
        return
    first = wrong[0]
    named = first.choices[first.find_by_name(counting) or 0]
    raise UserError(
        f"{first.location}: the label '{first.label.strip()}' is the text of a choice, and as a "
        f"number or letter it means a different one, '{named.strip()}' (counted from {counting}). {len(wrong):,} of "
        f"{len(rows):,} rows are ambiguous in this way: {GIVE}.",
        code="ambiguous-label",
    )


def _first(rows: Sequence[ChoiceLabel]) -> Counting:
    """Detect the name of the first choice.

    It is 1 if no label is 0 and some label equals the number of its row's choices, which is impossible counting from 0.
    Rows that name their choices are ignored; so are numbers that are texts if some labels are words. Raises UserError
    if many rows leave it open.
    """
    counted = [row for row in rows if not row.called]
    if counted and all(_like_a_name(row.label.strip(), "A") for row in counted):
        return "A"
    if not all(_like_a_name(row.label.strip(), "0") for row in counted):
        counted = [row for row in counted if row.text is None]
    labels = {row.label.strip() for row in counted}
    if "0" in labels:
        return "0"
    if any(row.label.strip() == str(len(row.choices)) for row in counted):
        return "1"
    if len(counted) >= DOUBTED and len(labels) > 1 and all(map(str.isdigit, labels)):
        raise UserError(
            f"{counted[0].location}: no label is 0, and none is the number of its row's choices, so the first choice "
            "may be called 0 or 1. Say which: --counting 0 or --counting 1.",
            code="ambiguous-label",
        )
    return "0"


def _like_a_name(label: str, counting: Counting) -> bool:
    return len(label) == 1 and label.isalpha() if counting == "A" else label.isdigit()


_PREFIXES = {"sent1": "sent2"} | dict.fromkeys(PASSAGES, "question")
"""Name of the context -> name of a column with text before each choice: the beginning of SWAG's endings, or the
question about a passage (RACE, Lai et al. 2017), which is then never truncated with the passage."""
_NUMBERED = re.compile(r"(.*?)[ _-]?(\d+|[a-h])", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class ChoiceColumns:
    """The columns in use. The columns of `context` are joined with spaces; `prefix` precedes each choice.

    `choices`: a column for each choice, or one with a list of them (JSON lines). `label`: "" if there is none.
    """

    context: tuple[str, ...]
    choices: tuple[str, ...]
    prefix: str = ""
    label: str = ""

    def describe(self, *, labelled: bool = True) -> str:
        """Describe the columns. Without `labelled`, mention that the label is not read."""
        before = f" behind '{self.prefix}'" if self.prefix else ""
        label = f"label from '{self.label}'" if labelled else f"the labels in '{self.label}' are not read"
        choices = f"choices from {_quote_names(self.choices)}{before}"
        return f"context from {_quote_names(self.context)}, {choices}, {label if self.label else 'no label'}"


def choose(columns: Sequence[str], *, user_columns: ChoiceColumns, path: str, labelled: bool) -> ChoiceColumns:
    """Return the columns to use: the given ones (`user_columns`), else those with usual names; "answer" is a label
    beside choices.

    Raises UserError listing the columns if a given one is absent or none can be detected.
    """
    header = Header(columns, path)
    wanted = [("context", name) for name in user_columns.context] + [("choices", name) for name in user_columns.choices]
    wanted += [("prefix", user_columns.prefix), ("label", user_columns.label if labelled else "")]
    for option, name in wanted:
        header.require(name, option=option)
    numbered = tuple(_find_numbered(columns, ROLES["choice"]))
    choices = user_columns.choices or numbered or tuple(filter(None, [header.find("choices")]))
    if not choices:
        raise UserError(
            f"{header.listed}; which are the choices? Give --choices NAME,NAME (or one column with a list), or for a "
            "run that is trained --columns.choices NAME,NAME.",
            code="unknown-column",
        )
    # A column such as "answer" may be the choices or the label: the choices come first.
    label = header.find("right choice", user_columns.label, but=choices)
    if labelled and not label:
        raise header.missing("label", ": give --label NAME.")
    single = header.find("context", but=(*choices, label))
    context = user_columns.context or (*_find_numbered(columns, ("inputsentence",)),) or (*filter(None, [single]),)
    if not context:
        advice = "for a run that is trained --columns.context NAME (or NAME,NAME)."
        raise header.missing("context", f": give --context NAME (or NAME,NAME), or {advice}")
    prefix = user_columns.prefix
    # The prefix is detected only with a detected context: it depends on the name of the context.
    if not (prefix or user_columns.context):
        prefix = header.by_name.get(_PREFIXES.get(context[0].strip().lower(), ""), "")
    return ChoiceColumns(context=context, choices=choices, prefix=prefix, label=label)


def record_of(row: Row, columns: ChoiceColumns, *, counting: Counting, path: str) -> Choices:
    """Return the context and choices of a row. Raises ValueError with the reason if they are unusable."""
    require_cells(row, (*columns.context, *columns.choices, columns.prefix, columns.label))
    context = " ".join(filter(None, (row.values[name].strip() for name in columns.context)))
    choices, called = texts_of(row, columns)
    if not context and not any(choices):
        # An empty row is no error: it becomes an empty record.
        return Choices(number=0, texts=("",), names=(), path=path, line=row.line)
    if len(choices) < 2:
        problem = "there is 1 choice" if choices else "there are no choices"
        raise ValueError(f"{problem}, expected two or more. Write them, or remove the row")
    if not context:
        raise ValueError("the context is empty. Write it, or name its column with --context")
    if empty := [number for number, choice in enumerate(choices, 1) if not choice.strip()]:
        raise ValueError(f"choice {empty[0]} of {len(choices)} is empty. Write it, or remove the row")
    called = called or names(len(choices), counting)
    prefix = row.values[columns.prefix].strip() if columns.prefix else ""
    texts = (context, *(f"{prefix} {choice}".strip() for choice in choices))
    choice_label = (
        ChoiceLabel(label=row.values[columns.label], choices=choices, called=called) if columns.label else None
    )
    right = choice_index(choice_label, counting) if choice_label else None
    if right is not None and choices.count(choices[right]) > 1:
        raise ValueError(f"the right choice, {choices[right]!r:.60}, is there twice. Correct it, or remove the row")
    label = None if right is None else called[right]
    return Choices(number=0, texts=texts, names=called, label=label, path=path, line=row.line)


def texts_of(row: Row, columns: ChoiceColumns) -> tuple[list[str], tuple[str, ...]]:
    """Return a row's choices, and their names if it has them; empty cells at the end are ignored.

    One column may hold a list of texts, or an object {"text": [...], "label": [...]}.
    """
    if len(columns.choices) > 1:
        texts = [row.values[name].strip() for name in columns.choices]
        # Rows may have fewer choices than the table has columns.
        while texts and not texts[-1]:
            texts.pop()
        return texts, ()
    (name,) = columns.choices
    # JSON lines have the list itself; other tables have it as JSON in a cell.
    choices: Any = row.source.get(name, row.values[name])
    if isinstance(choices, str):
        choices = parse_cell(choices) if choices.strip() else []
    called: Any = ()
    if isinstance(choices, Mapping):
        choices, called = choices.get("text"), choices.get("label", ())
    if not isinstance(choices, list) or not all(isinstance(text, str) for text in choices):
        raise ValueError(f"'{name}' is not a list of texts")
    # A label must name one choice only.
    if called and (len(called) != len(choices) or len(set(called)) != len(called)):
        raise ValueError(f"'{name}' has {len(choices)} texts, but {len(set(called))} different labels")
    return choices, tuple(map(str, called))


def _find_numbered(columns: Sequence[str], stems: Sequence[str]) -> Iterator[str]:
    """Yield the columns named by the first stem that occurs with several numbers or letters: ending0, ending1, ..."""
    for stem in stems:
        group = [name for name in columns if (m := _NUMBERED.fullmatch(name.strip())) and m[1].lower() == stem]
        if len(group) > 1:
            yield from group
            return


def _quote_names(columns: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in columns)


class ChoiceSource(TableSource):
    """Reads tables with a context, choices and the right one of them."""

    task: Choose
    redetected = ("context", "choices", "prefix", "label")

    def find_files(self, data: Path) -> Mapping[str, Path]:
        return find_named(data)

    @property
    def named(self) -> tuple[str, ...]:
        task = self.task
        return (*task.context, *task.choices, task.prefix, task.label, *headings("context", "choices", "right choice"))

    def columns(self, table: Table, *, labelled: bool) -> ChoiceColumns:
        task = self.task
        user_columns = ChoiceColumns(context=task.context, choices=task.choices, prefix=task.prefix, label=task.label)
        return choose(table.columns, user_columns=user_columns, path=table.called, labelled=labelled)

    def resolve(self) -> Task:
        table = self.open(self.file("train"))
        columns = self.columns(table, labelled=True)
        counting = self.task.counting if self.task.counting != "auto" else _counting(table, columns)
        return self.attach_to(replace(self.task, **asdict(columns), counting=counting))

    def record(self, row: Row, columns: ChoiceColumns, *, path: str = "") -> Choices:
        return record_of(row, columns, counting=self.task.first, path=path)


class ChoiceDescription(TableDescription):
    """Describes contexts with their choices."""

    task: Choose

    def remarks(self) -> list[str]:
        read = f"the label of the first choice is {self.task.first}"
        read = "labels are the texts of choices" if self.task.counting == "text" else read
        return [f"{read} (--counting 0, 1, A or text)"]

    def describe_split(self, records: Sequence[Record]) -> str:
        counts = sorted({len(record.texts) - 1 for record in records})
        ways = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}" if counts else "no"
        repeated = [record.place for record in records if len({*record.texts[1:]}) < len(record.texts) - 1]
        remark = f"; equal wrong choices in {len(repeated):,}, the first being {repeated[0]}" if repeated else ""
        return f"{len(records):,} rows ({ways} choices each{remark})"


@dataclass(frozen=True, kw_only=True)
class Choose(FeatureTask, TableTask):
    """A context, two or more choices, and the right one. Rows may have different numbers of choices.

    A choice is the second text, after the context. The label is the number of the right choice, from 0 or from 1
    depending on the file; a letter; or the text of the choice.
    """

    form = "choice"
    edge = Edge(kind="choose", call="predict")
    published_outputs = 1
    reads_rows = True
    reader: ClassVar[type[Source]] = ChoiceSource
    describer: ClassVar[type[Description]] = ChoiceDescription
    batching: ClassVar[Literal["sequences", "records", "step"]] = "records"
    sample: ClassVar[str] = '"a context" "one way to go on" "another"'
    too_long: ClassVar[str] = (
        "{count:,} pieces of the context and its choices more than fit into {length} tokens. Shorten them, or give "
        "--long truncate or head+tail."
    )

    temperature: float = 0.0
    """Divisor of the logits before the softmax, so that confidence matches accuracy; 0 to fit it to the development
    rows, 1 for the plain softmax."""
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
        super().__post_init__()
        check_temperature(self.temperature)
        if self.long == "window":
            raise ValueError(
                "long = window cannot be used: each choice is one sequence. Give truncate, head+tail or error"
            )

    @property
    def request_fields(self) -> tuple[str, ...]:
        prefix = (self.prefix,) if self.prefix else ()
        return (*self.context, *prefix, *self.choices) if self.context and self.choices else ("context", "choices")

    @property
    def criterion(self) -> str:
        return "accuracy"

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
        if self.features != "none":
            return self.head_on_features(backbone)
        from osbert.models.heads.grouped import ChoiceHead

        return ChoiceHead(backbone, target=self.name, dropout=backbone.architecture.dropout)

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> ChoicePrediction:
        scores = np.array([output[0] for output in outputs], np.float64)
        probabilities = softmax(scores, self.temperature)
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

    def tune(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        fitted, calibration = fit_temperature(self.temperature, predictions, records, weighed=self.weighed)
        return replace(self, temperature=fitted), calibration

    def export_metadata(self) -> dict[str, Any]:
        return {"scale": 1 / (self.temperature or 1)}

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        hits = [prediction.value == record.label for prediction, record in zip(predictions, records, strict=True)]
        return {"accuracy": float(np.mean(hits))}

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        plain_outcome, called = super().outcome(prediction, record), _names(record, self.first)
        # Text 0 is the context: choice i is text 1 + i.
        texts = [1 + called.index(name) for name in (record.label, prediction.value)]
        marks = [TextMark(start=0, end=len(record.texts[text]), of=of, text=text) for of, text in zip(SIDES, texts)]
        return replace(plain_outcome, marks=tuple(marks))

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
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
