"""The contract of a task: records in, sequences and a head for training, predictions and scores out.

A task is an objective that can also be scored and decoded; its source reads its data. A kind (a file or a folder in
kinds/) reads one's own files. A named data set (a file in sets/) is a few lines on a kind: where its files and columns
are, and what its labels are called. The other folders hold what several tasks stand on.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example
from osbert.data.modes import Writing
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.objectives import Objective
from osbert.reading.splits import USUAL, Names, find_splits, is_test, named_splits
from osbert.reading.table import Origin
from osbert.tasks.edges import Edges
from osbert.tasks.outcome import RecordOutcome, simple_outcome
from osbert.tasks.record import Inputs, Prediction, Record

if TYPE_CHECKING:
    from osbert.models.sizes import Sizes
    from osbert.tasks.calibration import Calibration

TaskT = TypeVar("TaskT", bound="Task")


class Source:
    """How the data of a task are read: files, or rows in memory, and what messages say of them.

    `task`: whose settings say how. `given`: tables in memory, or files, by the names of their splits, "all" for one
    alone; None for what the setting `data` names. A kind has its own subclass, which says `read`, `held`,
    `inputs` and what else does not suit it.
    """

    def __init__(self, task: Task, given: Mapping[str, Origin] | None = None) -> None:
        """Read what is `given`, or the task's own `data`."""
        self.task = task
        self.given = given
        self._training: list[Record] = []

    @property
    def called(self) -> str:
        """Return what messages call the data: their path."""
        return self.task.data if self.given is None else "the data"

    def passed_on(self, task: TaskT) -> TaskT:
        """Return the task with this source: what it was given and what it knows of files by now are kept."""
        source = copy.copy(self)
        source.task = task
        vars(task)["source"] = source  # where a cached property keeps it
        return task

    def files(self) -> Mapping[str, Origin]:
        """Return the file, or the table, of each split; one alone is {"all": file}. UserError when there is none."""
        found: Mapping[str, Origin]
        if self.given is None:
            found = self.find_files(Path(self.task.data))
        else:
            found = self.given if "all" in self.given else named_splits(self.given, self.split_names)
        if not (dev := self.task.dev):
            return found
        if not Path(dev).is_file():
            raise UserError(
                f"{dev}: no such file. --dev takes the file with the development rows.", code="missing-file"
            )
        others = {split: origin for split, origin in found.items() if not split.startswith("dev")}
        return {"train" if split == "all" else split: origin for split, origin in others.items()} | {"dev": Path(dev)}

    @property
    def split_names(self) -> Names:
        """Return what the parts of data in memory may be called."""
        return USUAL

    @property
    def alone(self) -> Origin | None:
        """Return the file or table that is all of the data, None where there may be several."""
        if self.given is not None:
            return self.given.get("all")
        return path if (path := Path(self.task.data)).is_file() else None

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the file of each split in a folder, or one file as "all"; raises UserError when there is none."""
        return find_splits(data)

    def file(self, split: str) -> Origin:
        """Return the file, or the table, of a split; raises UserError when there is none."""
        files = self.files()
        found = files.get(split, files.get("all"))
        if found is None or (is_test(split) and "all" in files):
            raise UserError(f"{self.called} has no file for {split}; it has {', '.join(files)}.", code="missing-split")
        return found

    def shared(self, split: str) -> bool:
        """Return whether the rows of a split are held out of the training file, for want of a file of their own."""
        return split == "dev" and "dev" not in self.files()

    # What is read of them.

    def cells(self, column: str) -> Mapping[int, str]:
        """Return the cells of a column of the training file by their rows' first lines; UserError if there is none."""
        raise UserError(f"{self.called} is no table: it has no column '{column}'.", code="unknown-column")

    def resolved(self) -> Task:
        """Return the task with what its data leave open written down, such as the columns by name."""
        return self.task

    def findings(self) -> list[str]:
        """Describe the data that were read: each file's form, where development rows come from."""
        return []

    def left_out(self, split: str) -> list[str]:
        """Return lines about the rows of a split that are skipped because they are known to be unusable."""
        return []

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the records of "train", "dev", "test", or "all" (every row of one file), numbered.

        Without a development file some of the training rows are held out. Whatever cannot be used is noted in
        `problems`, with file and line, and left out.
        """
        if split in ("train", "dev") and self.shared("dev"):
            rows = self._training_rows(problems, kept=split == "train")
            found: Iterable[Record] = [row for row, out in zip(rows, self.held(rows)) if out == (split == "dev")]
        else:
            found = self.read(self.file(split), problems, labelled=not is_test(split))
        for number, record in enumerate(found):
            yield dataclasses.replace(record, number=number)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterable[Record]:
        """Return the records of a file, in its order; what cannot be used is noted in `problems`.

        Without `labelled` the labels may be absent.
        """
        raise NotImplementedError

    def held(self, records: Sequence[Record]) -> Booleans:
        """Return which of the training rows (n,) are held out for development."""
        raise NotImplementedError

    def _training_rows(self, problems: Problems, *, kept: bool) -> list[Record]:
        """Return all rows of the training file, `kept` for the next call if none has a problem: it is read once."""
        rows, self._training = self._training, []
        if kept or not rows:
            before = problems.count
            rows = list(self.read(self.file("train"), problems, labelled=True))
            self._training = rows if kept and problems.count == before else []
        return rows

    def inputs(self, data: Origin) -> Inputs:
        """Return a file of plain input; it needs no labels. Raises UserError when it cannot be read as such."""
        raise UserError(
            f"The task {self.task.name} reads no files, only texts given one by one.", code="wrong-number-of-texts"
        )

    def moved(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data, a file, a folder or tables, of which `given` says how to read them.

        Raises UserError when one of them is no setting of this task.
        """
        known = [field.name for field in dataclasses.fields(self.task)]
        for name in given:
            if name not in known:
                raise UserError(f"The task {self.task.name} has no use for --{name}.", code="unknown-setting")
        several = {name: (value,) for name, value in given.items() if self._is_one_of_several(name, value)}
        path = str(data) if isinstance(data, Path) else ""
        task = dataclasses.replace(self.task, data=path, dev="", **{**given, **several})
        return type(self)(task, None if isinstance(data, Path) else data).passed_on(task)

    def _is_one_of_several(self, name: str, value: Any) -> bool:
        return isinstance(getattr(self.task, name), tuple) and isinstance(value, str)


@dataclass(frozen=True, kw_only=True)
class Task(Edges, Objective):
    """Records -> examples -> outputs -> predictions -> metrics. Its fields are its settings.

    The target it writes into examples, and its head in a Learner, go by its `name`.
    """

    reader: ClassVar[type[Source]] = Source
    """What reads its data: files, or rows in memory. A task that is only ever given records needs none."""
    batching: ClassVar[Literal["sequences", "records", "step"]] = "sequences"
    """What stays in one pass through the model: a sequence; all sequences of a record, where the loss compares them, as
    a softmax over choices does; or a whole step, where it compares the step's records."""
    lazy: ClassVar[bool] = False
    """Whether sequences are made when a step needs them, anew each epoch: where making all first would take long."""
    sample: ClassVar[str] = '"a text of yours"'
    """What to write behind `osbert predict RUN` to try a run."""
    row_score: ClassVar[str] = "accuracy"
    """What the mean of the rows' own scores (`RecordOutcome.score`) is called."""

    weight: ClassVar[float] = 1.0  # type: ignore[misc]  # no setting: a task is trained on alone, or all count alike

    data: str = ""
    """The file or folder with the task's data."""
    dev: str = ""
    """The file with the development rows, in place of those in `data`; all rows of a file in `data` are then learnt
    from."""
    length: int = 512
    """Most tokens in a sequence, [CLS] and [SEP] included; never more than the model can read."""

    def __post_init__(self) -> None:
        """Refuse a length into which no pair fits, and two classes of one name."""
        if self.length < 5:
            raise ValueError(f"length must be at least 5 (two texts, [CLS] and two [SEP]), not {self.length}")
        if twice := [name for name, count in Counter(self.classes).items() if count > 1]:
            raise ValueError(f"two classes have the name '{twice[0]}': each needs its own")

    @property
    def criterion(self) -> str:
        """Return the metric by which the best epoch is kept; higher is better."""
        raise NotImplementedError

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes of which each has a score of its own among the metrics ("f1/NAME"), none by default."""
        return ()

    @property
    def weighed(self) -> bool:
        """Return whether its probabilities, if any, are the model's: those of a rule cannot be right or wrong."""
        return True

    @property
    def by_rows(self) -> bool:
        """Return whether the metrics of some rows stand for those of all: not where each is searched among all."""
        return True

    # The data: methods that need no model. How they are read is the source's business.

    @cached_property
    def source(self) -> Source:
        """Return what reads the task's data: the files of its settings, unless it was given others (`with_data`)."""
        return self.reader(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings alone: rows in memory and what is known of files do not go to loader workers."""
        return {name: value for name, value in vars(self).items() if name != "source"}

    def remarks(self) -> list[str]:
        """Return in words what else there is to say of the data, once the task is fitted."""
        return []

    def warnings(self) -> list[str]:
        """Return in words what of the data looks wrong, once the task is fitted; it is learnt from all the same."""
        return []

    def classes_of(self, record: Record) -> Iterable[str]:
        """Return those of `classes` that the label of a record has, each once."""
        return () if record.label is None or not self.classes else (record.label,)

    def describe(self, records: Sequence[Record]) -> str:
        """Return in words what a split holds."""
        return f"{len(records):,} rows"

    def fitted(self, records: Sequence[Record]) -> Self:
        """Return the task with what it learns from its training records, such as the labels' names."""
        return self

    def by_vectors(self, records: Sequence[Record]) -> Self:
        """Return the task as a layer on sentence vectors learns it from its training records; by default itself."""
        return self

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        """Note each record whose label this task does not know."""

    def lacks(self, record: Record) -> str:
        """Return what a training record lacks to be learnt from, in words, "" for nothing; others are passed over."""
        return "" if record.label is not None else "label that can be learnt from"

    def record_of(self, texts: Sequence[str]) -> Record:
        """Return the record of texts in the order the model reads them; UserError at another number than it reads."""
        return Record(number=0, texts=tuple(texts))

    # The model: records to sequences, outputs to predictions.

    def for_model(self, sizes: Sizes, writes: Writing | None = None) -> Self:
        """Return the task with what its sequences owe to a model's settings and pretraining, before it is laid out."""
        return self

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the sequences of a record, at least one, with targets under the task's name if the label is known.

        Raises UserError when the record has another number of texts than the task reads.
        """
        raise NotImplementedError

    def limit(self, packer: Packer) -> str:
        """Return in words how much of a text is read; Example.truncated counts the rest."""
        return f"{packer.length} tokens"

    def per_step(self, batch: int, records: Sequence[Record]) -> int:
        """Return how many of the training records make a step of `batch`; fewer where each is many items in one."""
        return batch

    def cuts(self, records: Sequence[Record], packer: Packer) -> str:
        """Return in words which parts of the records are not read, for a `lazy` task; other tasks count them."""
        return ""

    @property
    def unread(self) -> str:
        """Return where the pieces lie that are not read, in words."""
        return "at the end"

    def bound(self, length: int) -> str:
        """Return how long the texts of a row may be without being cut, in words; `length`: of a sequence."""
        return f"{length} tokens"

    @property
    def longer(self) -> str:
        """Return which settings let more be read, in words."""
        return "--length N changes this, up to the model's own."

    def refuse_long(self, records: Sequence[Record], packer: Packer, problems: Problems) -> None:
        """Note each record that does not fit, if the task's settings forbid to leave out any of it."""

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> Prediction:
        """Return the prediction from the head's outputs for the record's `examples`, the sequences `encode` made.

        Each output is (K,), or (n, K) for the n tokens of a sequence if `per_token`; of the form text, what was
        written after the sequence, as a Generation (models/generation/written.py).
        """
        raise NotImplementedError

    def decode_with(self, learnt: Mapping[str, list[Any]]) -> Callable[..., Prediction]:
        """Return `decode`, or what decodes with what `Head.learnt` gave: of a CRF the scores of its transitions."""
        return self.decode

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the scores of predictions against the labels of their records."""
        raise NotImplementedError

    def error(self, prediction: Prediction, record: Record) -> float:
        """Return how far a prediction is from its record's label, 0 where it is right; the worst mistake is highest.

        1 minus the label's probability, if there is one; the distance of two numbers; 1 for any other mistake.
        """
        if prediction.value == record.label:
            return 0.0
        if isinstance(prediction.value, float):
            return abs(prediction.value - record.label)
        return 1 - prediction.probabilities.get(record.label, 0.0) if prediction.probabilities else 1.0

    def tuned(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        """Return the task with what it learns from the predictions for the development records, such as a threshold.

        The second value is the calibration of its probabilities, None if there is none. Training goes on with the task
        as it was; the run folder gets the one tuned on the best epoch.
        """
        return self, None

    def at_best(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[Prediction]:
        """Return the predictions for the development records as the task tuned on them would have made them."""
        return [*predictions]

    # The results: what commands show and write.

    def names(self, record: Record) -> tuple[str, ...]:
        """Return the names of the labels that a record has, for reports; none where its label is no name."""
        return (record.label,) if isinstance(record.label, str) else ()

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return how the prediction for a record compares with its label, for reports and comparisons of runs.

        By default the label is one of several, or a number.
        """
        return simple_outcome(prediction, record, self.error(prediction, record))

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[list[str]]:
        """Return a table to show beside the scores, its heading first; empty for none."""
        return []

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
        """Return the cells of a prediction in a CSV row, by heading; all empty without a prediction."""
        said = ("", "") if prediction is None else (prediction.value, prediction.truncated)
        return dict(zip(("prediction", "truncated"), said))

    def published(self) -> dict[str, Any]:
        """Return what is written beside the weights for others to read: `labels`, or `center` and `scale`."""
        return {}
