"""text_to_text: a GLUE data set as text generation, scored like the data set (T5, Raffel et al. 2020)."""

from __future__ import annotations

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from osbert import components
from osbert.data.example import Booleans, Example
from osbert.errors import Problems, UserError
from osbert.reading.table import Origin
from osbert.tasks import Description, Inputs, Prediction, Record, Source, Task
from osbert.tasks.record import RecordOutcome
from osbert.tasks.tables import READING, TableTask
from osbert_lab.writing.generate import Generate, WritingDescription

if TYPE_CHECKING:
    from osbert.text.file_tokenizer import AnyTokenizer

NO_LABEL = "no label"
"""The class of a generated text that is not a label: it is always wrong."""
NO_NUMBER = -1.0
"""The value of a generated text that is not a number, as in the authors' code; labels are 0 or more."""
SETTLED = ("prefix", "text", "target", "kept_by")
"""Settings of `generate` that follow from the data set."""


@dataclass(frozen=True, kw_only=True)
class SetTexts:
    """How rows become texts: the names of the `texts`, and the `step` that numbers are rounded to."""

    texts: tuple[str, ...]
    step: float = 0.0


@cache
def table() -> Mapping[str, SetTexts]:
    """Return the text format of each data set by its name, from text_to_text.toml."""
    file = importlib.resources.files(__package__) / "text_to_text.toml"
    rows = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: SetTexts(texts=tuple(row["texts"]), step=row.get("step", 0.0)) for name, row in rows.items()}


class LabelledSource(Source):
    """Reads a data set as its own task does."""

    task: TextToText

    def __init__(self, task: Task, given: Mapping[str, Origin] | None = None) -> None:
        """Read the files `given`, or those of the task's own `data`."""
        super().__init__(task, given)
        labelled = self.task.labelled
        self.labelled = labelled.source if given is None else labelled.reader(labelled, given)
        self.split_names = self.labelled.split_names

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the file of each split. Raises UserError if there is none."""
        return self.labelled.find_files(data)

    def cells(self, column: str) -> Mapping[int, str]:
        """Return the cells of a column of the training file. Raises UserError if there is no such column."""
        return self.labelled.cells(column)

    def resolve(self) -> Task:
        """Return the task. Raises UserError if the training file lacks the data set's columns."""
        self.labelled.resolve()
        return self.task

    def findings(self) -> list[str]:
        """Describe the data that were read."""
        return self.labelled.findings()

    def left_out(self, split: str) -> list[str]:
        """Return lines about the rows of a split that are skipped because they are known to be unusable."""
        return self.labelled.left_out(split)

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the set's own records of a split, numbered."""
        return self.labelled.records(split, problems)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterable[Record]:
        """Return the records of a file, in its order. Unusable rows are reported to `problems`."""
        return self.labelled.read(origin, problems, labelled=labelled)

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return which of the training rows (n,) are held out for development."""
        return self.labelled.mark_held_out(records)

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data, a file or a folder, without the settings that read the training file."""
        defaults = {name: getattr(TextToText, name) for name in READING}
        return super().switch_data(data, defaults | dict(given))

    def inputs(self, data: Origin) -> Inputs:
        """Return a file of plain input. Raises UserError if it cannot be read as such."""
        return self.labelled.inputs(data)


class LabelledDescription(WritingDescription):
    """Describes rows as their data set's own task does."""

    task: TextToText

    def describe_split(self, records: Sequence[Record]) -> str:
        """Describe the number of rows of a split, and the frequencies of labels."""
        return self.task.labelled.description.describe_split(records)


@dataclass(frozen=True, kw_only=True)
class TextToText(Generate):
    """The rows of a GLUE data set as texts: source `sst2 sentence: a fine film`, target `positive`.

    The format is T5's. A generated text is compared with the labels after spaces are removed, since a tokenizer may add
    them around "_" and "."; a text that is not a label counts as wrong. The scores are those of the data set.
    """

    reader: ClassVar[type[Source]] = LabelledSource
    describer: ClassVar[type[Description]] = LabelledDescription

    data_set: Literal["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"] = "sst2"
    """The GLUE data set whose files are in `data`."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings that follow from the data set."""
        super().__post_init__()
        for name in SETTLED:
            if getattr(self, name) != getattr(Generate, name):
                raise ValueError(f"{name} is fixed by the data set {self.data_set}: remove it")

    @cached_property
    def labelled(self) -> TableTask:
        """Return the data set's own task, with this task's settings for reading files."""
        kind = components.find("tasks", self.data_set, base=TableTask)
        common = {field.name: getattr(self, field.name) for field in dataclasses.fields(TableTask)}
        task: TableTask = kind(**common)
        return task

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for pickling, without the cached task."""
        return {name: value for name, value in super().__getstate__().items() if name != "labelled"}

    @property
    def texts(self) -> SetTexts:
        """Return the text format of the data set."""
        return table()[self.data_set]

    # Rows to texts, and texts to labels.

    def source_text(self, record: Record) -> str:
        """Return the source of a row as T5 reads it.

        >>> task = TextToText(data_set="mnli")
        >>> task.source_text(task.record_of(["It rains.", "It is wet."]))
        'mnli hypothesis: It is wet. premise: It rains.'
        """
        # T5 sorts the fields by name: "hypothesis" comes before "premise".
        named = sorted(zip(self.texts.texts, record.texts, strict=True))
        return " ".join((self.data_set, *(f"{name}: {text}" for name, text in named)))

    def require_room(self, tokenizer: AnyTokenizer, most: int) -> None:
        """Raise UserError if a label has more than `most` pieces, so that it could not be written."""
        counts = {label: len(tokenizer.encode(label)) for label in self.classes}
        if long := [f"{label} ({count})" for label, count in counts.items() if count > most]:
            raise UserError(
                f"--most {most}: the labels {', '.join(long)} of {self.data_set} have more pieces and "
                f"could never be written. With this vocabulary set --most {max(counts.values())} or more.",
                code="invalid-setting",
            )

    def words_of(self, label: Any) -> str:
        """Return the target text of a label or a number; halves are rounded to the even multiple of the step.

        >>> TextToText(data_set="stsb").words_of(2.75), TextToText().words_of("positive")
        ('2.8', 'positive')
        """
        if not self.labelled.numbers:
            return str(label)
        steps = round(1 / self.texts.step)  # a product with 5 is exact where a quotient by 0.2 is not
        return f"{round(label * steps) / steps:.1f}"

    def label_of(self, text: str) -> Any:
        """Return the label or the number of a generated text; None if it is neither.

        >>> TextToText(data_set="mrpc").label_of("not _ equivalent"), TextToText(data_set="stsb").label_of("3 . 8")
        ('not_equivalent', 3.8)
        """
        # Labels have no spaces of their own.
        plain = "".join(text.split())
        if not self.labelled.numbers:
            return plain if plain in self.labelled.classes else None
        try:
            return self.labelled.value(plain)  # type: ignore[attr-defined]
        except ValueError:
            return None

    def target_texts(self, record: Record) -> tuple[str, ...]:
        """Return the text of a record's label."""
        return (self.words_of(record.label),)

    def decode(self, outputs: Sequence[Any], record: Record, examples: Sequence[Example]) -> Prediction:
        """Return the generated label as the data set spells it, or the text if it is not a label."""
        prediction = super().decode(outputs, record, examples)
        label = self.label_of(prediction.value)
        return prediction if label is None else dataclasses.replace(prediction, value=str(label))

    # What the data set's own task says.

    @property
    def criterion(self) -> str:
        """Return the data set's score."""
        return self.labelled.criterion

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the labels; () if they are numbers."""
        return self.labelled.classes

    @property
    def row_score(self) -> str:  # type: ignore[override]
        """Return the name of the score of single rows."""
        return self.labelled.row_score

    @property
    def request_fields(self) -> tuple[str, ...]:
        """Return the names of the texts of a row."""
        return self.texts.texts if len(self.texts.texts) > 1 else ("text",)

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task unchanged. Raises UserError if every row has the same label."""
        self.labelled.fit(records)
        return self

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        """Report each record whose label is not one of the data set's."""
        self.labelled.check(records, problems)

    def names(self, record: Record) -> tuple[str, ...]:
        """Return the label of a record; () if labels are numbers."""
        return self.labelled.names(record)

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the data set's scores. A text that is not a label is wrong; one that is not a number counts as -1."""
        task, other = self.labelled, NO_NUMBER if self.labelled.numbers else NO_LABEL
        if not task.numbers:
            # One more class, so that F1 and Matthews correlation are defined for wrong texts.
            task = dataclasses.replace(task, labels=(*task.classes, NO_LABEL))  # type: ignore[call-arg]
        read = [(self.label_of(str(prediction.value)), prediction) for prediction in predictions]
        label_predictions = [
            dataclasses.replace(prediction, value=other if label is None else label) for label, prediction in read
        ]
        scores = task.metrics(label_predictions, records)
        # The F1 of the added class means nothing.
        return {name: value for name, value in scores.items() if name != f"f1/{NO_LABEL}"}

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the outcome of a prediction, compared with the record's label; a text that is no label stays one."""
        label = self.label_of(str(prediction.value))
        if label is None:
            label = NO_NUMBER if self.labelled.numbers else prediction.value
        return self.labelled.outcome(dataclasses.replace(prediction, value=label), record)
