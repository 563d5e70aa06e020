"""The contract of a task: records -> sequences and a head for training -> predictions and scores.

A task is an objective that can also be scored and decoded; its source reads its data. A kind (a file or a folder in
kinds/) reads the user's own files. A named data set (a file in sets/) is a few lines on a kind: its files, its columns
and the names of its labels. The other folders have the common parts of several tasks.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Booleans, Example, Places
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.models.forms import PER_TOKEN, Features, Form, Values, Writing
from osbert.objectives import Objective
from osbert.reading.splits import USUAL, Names, find_splits, is_single, is_test, select_splits
from osbert.reading.table import Origin
from osbert.tasks.edges import Edge, ExplainedScore
from osbert.tasks.record import Inputs, Prediction, Record, RecordOutcome, prediction_error
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.data.late_interaction import TokenVectors
    from osbert.models.contract import Learner
    from osbert.models.sizes import Sizes
    from osbert.tasks.calibration import Calibration
    from osbert.text.file_tokenizer import AnyTokenizer

TaskT = TypeVar("TaskT", bound="Task")


class TrainedSentences(Protocol):
    """How a sentence model computes the vector of a text, as far as training goes on from it."""

    @property
    def pooling(self) -> str:
        """The pooling of a text's states: one of models/forms.py, or several joined by "+"."""

    @property
    def lower_case(self) -> bool:
        """Whether texts are read in lower case."""

    @property
    def token_vectors(self) -> TokenVectors | None:
        """How it makes the vectors of tokens (ColBERT), None for one vector a text; UserError for an unknown way."""

    def prompt(self, role: str | None) -> str:
        """Return the prompt of a role, or the default prompt for None; "" for none."""


def no_sentences() -> TrainedSentences | None:
    """Return None: the model was not trained for vectors of texts."""
    return None


class Source:
    """Reads the data of a task: files, or rows in memory; and describes them for messages.

    `task`: the task, whose settings apply. `given`: tables in memory, or files, by split, "all" for a single one; None
    for the files of the setting `data`. Each kind has a subclass that defines `read`, `mark_held_out`, `inputs` and
    whatever else differs.
    """

    indivisible: ClassVar[str] = "training needs all rows"
    """Why no row of a training file could be held out, if that is so."""
    split_names: Names = USUAL
    """The accepted names of splits for data in memory."""

    def __init__(self, task: Task, given: Mapping[str, Origin] | None = None) -> None:
        """Read what is `given`, or the task's own `data`."""
        self.task = task
        self.given = given
        self._training: list[Record] = []
        self._facts: dict[tuple[Any, ...], Any] = {}
        """What was found about files, by what it is and the file, so that it is found once."""

    @property
    def called(self) -> str:
        """Return the name of the data in messages: their path."""
        return self.task.data if self.given is None else "the data"

    def attach_to(self, task: TaskT) -> TaskT:
        """Return `task` with this source, which keeps its data and its knowledge of files."""
        source = copy.copy(self)
        source.task = task
        vars(task)["source"] = source  # where a cached property keeps it
        return task

    def files(self) -> Mapping[str, Origin]:
        """Return the file or table of each split; a single one is {"all": file}. Raises UserError if there is none."""
        origins: Mapping[str, Origin]
        if self.given is None:
            origins = self.find_files(Path(self.task.data))
        else:
            origins = self.given if "all" in self.given else select_splits(self.given, self.split_names)
        if not (dev := self.task.dev):
            return origins
        if not is_single(Path(dev)):
            raise UserError(
                f"{dev}: no such file. --dev takes the file with the development rows.", code="missing-file"
            )
        others = {split: origin for split, origin in origins.items() if not split.startswith("dev")}
        return {"train" if split == "all" else split: origin for split, origin in others.items()} | {"dev": Path(dev)}

    @property
    def alone(self) -> Origin | None:
        """Return the file or table if there is a single one, None if there may be several."""
        if self.given is not None:
            return self.given.get("all")
        return path if is_single(path := Path(self.task.data)) else None

    def find_files(self, data: Path) -> Mapping[str, Path]:
        """Return the file of each split in a folder, or a single file as "all". Raises UserError if there is none."""
        return find_splits(data)

    def file(self, split: str) -> Origin:
        """Return the file or table of a split. Raises UserError if there is none."""
        files = self.files()
        origin = files.get(split, files.get("all"))
        if origin is None or (is_test(split) and "all" in files):
            raise UserError(f"{self.called} has no file for {split}; it has {', '.join(files)}.", code="missing-split")
        return origin

    def is_held_out(self, split: str) -> bool:
        """Return whether the rows of a split are held out of the training file because it has no file of its own."""
        return split == "dev" and "dev" not in self.files()

    # What is read of them.

    def cells(self, column: str) -> Mapping[int, str]:
        """Return the cells of a column of the training file by line. Raises UserError if there is no such column."""
        raise UserError(f"{self.called} is no table: it has no column '{column}'.", code="unknown-column")

    def resolve(self) -> Task:
        """Return the task with the settings that were detected from its data, such as the names of columns."""
        return self.task

    def findings(self) -> list[str]:
        """Describe the data that were read: the form of each file, and the origin of development rows."""
        return []

    def describe_held_out(self) -> str:
        """Return the line of `findings` on the rows that are held out; "" if a model cannot learn from all rows."""
        return ""

    def left_out(self, split: str) -> list[str]:
        """Return lines about the rows of a split that are skipped because they are known to be unusable."""
        return []

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the records of "train", "dev", "test", or "all" (every row of one file), numbered.

        Without a development file some of the training rows are held out. Unusable rows are reported
        to `problems`, with file and line, and left out.
        """
        if split in ("train", "dev") and self.is_held_out("dev"):
            rows, self._training = self._training, []
            if split == "train" or not rows:
                before = problems.count
                rows = list(self.read(self.file("train"), problems, labelled=True))
                # Kept for the development rows if no row has a problem, which would be reported again.
                self._training = rows if split == "train" and problems.count == before else []
            split_records: Iterable[Record] = [
                row for row, out in zip(rows, self.mark_held_out(rows)) if out == (split == "dev")
            ]
        else:
            split_records = self.read(self.file(split), problems, labelled=not is_test(split))
        for number, record in enumerate(split_records):
            yield dataclasses.replace(record, number=number)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterable[Record]:
        """Return the records of a file, in its order. Unusable ones are reported to `problems`.

        Without `labelled` the labels may be absent.
        """
        raise NotImplementedError

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return which of the training rows (n,) are held out for development."""
        raise NotImplementedError

    def inputs(self, data: Origin) -> Inputs:
        """Return a file of plain input, without labels. Raises UserError if it cannot be read."""
        raise UserError(
            f"The task {self.task.name} reads no files, only texts given one by one.", code="wrong-number-of-texts"
        )

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data: a file, a folder or tables; `given` are settings for reading them.

        Raises UserError if this task has no such setting.
        """
        known = [field.name for field in dataclasses.fields(self.task)]
        for name in given:
            if name not in known:
                raise UserError(f"The task {self.task.name} has no use for --{name}.", code="unknown-setting")
        # One of several columns may be given by itself.
        several = {
            name: (value,)
            for name, value in given.items()
            if isinstance(value, str) and isinstance(getattr(self.task, name), tuple)
        }
        path = str(data) if isinstance(data, Path) else ""
        task = dataclasses.replace(self.task, data=path, dev="", **{**given, **several})
        return type(self)(task, None if isinstance(data, Path) else data).attach_to(task)


class Description:
    """What is printed about a task: its data, what of long texts is not used, and its results.

    A kind says it with a subclass, its `describer`, where this does not suit it.
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    def describe_split(self, records: Sequence[Record]) -> str:
        """Describe a split, such as its numbers of rows and labels."""
        return format_count(len(records), "row")

    def remarks(self) -> list[str]:
        """Describe further facts about the data, after the task is fitted."""
        return []

    def warnings(self) -> list[str]:
        """Describe suspicious facts about the data, after the task is fitted; training uses them all the same."""
        return []

    def limit(self, packer: Packer) -> str:
        """Describe how much of a text is used; Example.truncated counts the rest."""
        return f"{packer.length} tokens"

    def cuts(self, records: Sequence[Record], packer: Packer) -> str:
        """Describe which parts of the records are not used, for a `lazy` task; other tasks count them."""
        return ""

    @property
    def unread(self) -> str:
        """Describe the position of pieces that are not used, such as "at the end"."""
        return "at the end"

    def bound(self, length: int) -> str:
        """Describe how long the texts of a row may be without truncation; `length`: tokens of a sequence."""
        return f"{length} tokens"

    @property
    def longer(self) -> str:
        """Describe the settings that allow longer texts."""
        return "--length N changes this, up to the model's own."

    def only_answer(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> str:
        """Return the one answer in words (`Prediction.answer`) if the model gives it to all records, else ""."""
        return predictions[0].answer if len({repr(prediction.comparable) for prediction in predictions}) == 1 else ""

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[list[str]]:
        """Return a table for display with the scores, its heading first; empty for none."""
        return []


REPLACED_METHODS = {
    *("answered", "asked", "by_vectors", "classes_of", "decided", "error", "for_sentences", "for_tokenizer"),
    *("per_step", "probability_labels", "refuse_long", "teaches", "tuned", "wanted"),
}
"""Methods of a task in earlier versions."""


@dataclass(frozen=True, kw_only=True)
class Task(Objective):
    """Records -> examples -> outputs -> predictions -> metrics. Its fields are its settings.

    Its `name` is the name of the target in its examples and of its head in a Learner.
    """

    reader: ClassVar[type[Source]] = Source
    """The class that reads its data: files, or rows in memory. Not needed if records are passed directly."""
    describer: ClassVar[type[Description]] = Description
    """The class that says what is printed about it."""
    batching: ClassVar[Literal["sequences", "records", "step"]] = "sequences"
    """The unit that stays in one pass through the model: a sequence; all sequences of a record if the loss compares
    them, such as a softmax over choices; or a whole step if the loss compares its records."""
    lazy: ClassVar[bool] = False
    """Whether sequences are encoded when a step needs them, in each epoch: for data that take long to encode."""
    sample: ClassVar[str] = '"a text of yours"'
    """Sample arguments of `osbert predict RUN` to try a run."""
    row_score: ClassVar[str] = "accuracy"
    """The metric that is the mean of the rows' scores (`RecordOutcome.score`)."""

    form: ClassVar[Form] = "sequence"
    """The form of its head's outputs, by which interop/ chooses classes of other libraries and ONNX outputs."""
    values: ClassVar[Values] = "classes"
    """The meaning of its head's outputs, for the form sequence."""
    edge: ClassVar[Edge | None] = None
    """Its HTTP interface; None for a kind that cannot be served."""
    published_outputs: ClassVar[int | None] = None
    """Number of outputs of other libraries' models that it can use: 0 for any number, with labels (`of_labels`); None
    if it cannot use any."""
    weighed: ClassVar[bool] = True
    """Whether its probabilities, if any, come from the model, not from a rule, and can be calibrated."""
    head_settings: ClassVar[tuple[str, ...]] = ()
    """The settings of a head that does not depend on the labels: fine-tuning a run of the kind goes on with its head
    and these settings. () for a kind whose runs have a new head each."""

    features: ClassVar[Features] = "none"
    """The layers of a frozen encoder that its head stands on (--features); none: it stands on the encoder."""

    @property
    def frozen_states(self) -> Literal["", "pooled", "tokens"]:
        """The states of a frozen encoder that its head's layer can be fitted to (few-shot learning); "" for none."""
        return "pooled" if self.form == "sequence" and self.features == "none" else ""

    @property
    def doubts_labels(self) -> bool:
        """Whether training rows are left out whose labels the other rows contradict."""
        return False

    by_rows: ClassVar[bool] = True
    """Whether metrics can be computed on any subset of rows; not if each row is searched among all."""
    reads_rows: ClassVar[bool] = False
    """Whether a request may have rows by column, which `row` reads."""

    weight: ClassVar[float] = 1.0  # type: ignore[misc]  # no setting: a task is trained on alone, or all count alike

    data: str = ""
    """The file or folder with the task's data."""
    dev: str = ""
    """The file with the development rows, instead of those in `data`; all rows of a file in `data` are then used for
    training."""
    length: int = 512
    """Most tokens in a sequence, [CLS] and [SEP] included; at most the model's limit."""

    def __init_subclass__(cls) -> None:
        """Refuse a kind with a method of an earlier version, which would never be called."""
        super().__init_subclass__()
        if outdated := sorted(REPLACED_METHODS & vars(cls).keys()):
            raise TypeError(
                f"{cls.__name__}.{outdated[0]} is no longer a method of tasks. CHANGELOG.md names its replacement, and "
                "docs/add-a-task.md has the present contract."
            )

    def __post_init__(self) -> None:
        """Raise ValueError for a length without room for a pair, and for classes with the same name."""
        if self.length < 5:
            raise ValueError(f"length must be at least 5 (two texts, [CLS] and two [SEP]), not {self.length}")
        if twice := [name for name, count in Counter(self.classes).items() if count > 1]:
            raise ValueError(f"two classes have the name '{twice[0]}': each needs its own")

    @property
    def criterion(self) -> str:
        """Return the metric that selects the best epoch; higher is better."""
        raise NotImplementedError

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes with a score of their own among the metrics ("f1/NAME"); none by default."""
        return ()

    # The data: methods that need no model. How they are read is the source's business.

    @cached_property
    def source(self) -> Source:
        """Return the reader of the task's data: the files of its settings, or the data given by `with_data`."""
        return self.reader(self)

    @cached_property
    def description(self) -> Description:
        """Return what is printed about the task."""
        return self.describer(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings only; rows in memory and knowledge of files are not pickled for loader workers."""
        return {name: value for name, value in vars(self).items() if name not in ("source", "description")}

    def fit(self, records: Sequence[Record]) -> Self:
        """Return the task with the settings that it learns from its training records, such as the labels' names."""
        return self

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        """Report each record with an unknown label to `problems`."""

    def lacks(self, record: Record) -> str:
        """Describe why a training record is skipped, "" if it can be used."""
        return "" if record.label is not None else "label that can be learnt from"

    def draw_epoch(self, records: Sequence[Record], rng: np.random.Generator) -> Places:
        """Return the indices of the training records of an epoch, as many as there are: each once, in random order."""
        return rng.permutation(len(records))

    def record_of(self, texts: Sequence[str]) -> Record:
        """Return the record of texts in the order of the model's input. UserError for a wrong number of texts."""
        return Record(number=0, texts=tuple(texts))

    # The model: records to sequences, outputs to predictions.

    def for_model(
        self,
        sizes: Sizes,
        tokenizer: AnyTokenizer,
        *,
        writes: Writing | None = None,
        read_sentences: Callable[[], TrainedSentences | None] = no_sentences,
    ) -> Self:
        """Return the task with what it takes from a model, before records are encoded and its head is made.

        `writes`: how the model was pretrained to write. `read_sentences`: returns how it computes vectors of texts,
        None if it was not trained for that. It raises UserError for a model whose vectors osbert cannot compute, so a
        task that needs none does not call it.
        """
        return self

    def label_scorer(self) -> type[Any] | None:
        """Return the LabelScorer that predicts labels by name with a kind that reads them with the input; else None."""
        return None

    @property
    def prompts(self) -> Mapping[str | None, str]:
        """Return the prompts that texts are read with, by role, None for no role; {} for a task without roles."""
        return {}

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the sequences of a record, at least one, with targets under the task's name if the label is known.

        Raises UserError if the record has a wrong number of texts.
        """
        raise NotImplementedError

    def decode(
        self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]
    ) -> Prediction:
        """Return the prediction from the head's outputs for the record's `examples`, the sequences `encode` made.

        Each output is (K,), or (n, K) for the n tokens of a sequence if `per_token`; for the form text it is
        a Generation (osbert_lab/writing/settings.py).
        """
        raise NotImplementedError

    def decode_with(self, learnt: Mapping[str, list[Any]]) -> Callable[..., Prediction]:
        """Return `decode`, or a version of it that uses `Head.decoding_values`, such as a CRF's transition scores."""
        return self.decode

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the scores of predictions against the labels of their records."""
        raise NotImplementedError

    def tune(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        """Return the task with settings tuned on predictions for the development records, such as a threshold.

        The second value is the calibration of its probabilities, None if there is none. Training goes on with the
        original task; the run folder gets the one tuned on the best epoch.
        """
        return self, None

    def at_best(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[Prediction]:
        """Return the predictions for the development records by the task tuned on them."""
        return [*predictions]

    # The results: what commands show and write.

    def names(self, record: Record) -> tuple[str, ...]:
        """Return the names in a record's label, for reports and warnings; none if it is no name."""
        return (record.label,) if isinstance(record.label, str) else ()

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Compare the prediction for a record with its label, for reports, mistakes and comparisons of runs.

        By default the label is one of several, or a number.
        """
        truth, guess, error = record.label, prediction.value, prediction_error(prediction, record)
        if isinstance(guess, float):
            numbers = (float(truth), guess)
            return RecordOutcome(
                truth=f"{truth:g}", guess=f"{guess:.4g}", score=-error, right=None, error=error, numbers=numbers
            )
        right, confidence = guess == truth, prediction.probabilities.get(guess)
        return RecordOutcome(
            truth=str(truth),
            guess=str(guess),
            score=float(right),
            right=right,
            error=error,
            confidence=confidence,
            pairs=((str(truth), str(guess)),),
            beliefs=() if confidence is None else ((confidence, right),),
        )

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
        """Return the cells of a prediction in a CSV row, by heading; all empty without a prediction.

        For the form sequence the probabilities of its `classes` can be added behind the first cell.
        """
        values = ("", "") if prediction is None else (prediction.value, prediction.truncated)
        return dict(zip(("prediction", "truncated"), values))

    def export_metadata(self) -> dict[str, Any]:
        """Return facts that are saved with the weights for other libraries: `labels`, or `center` and `scale`."""
        return {}

    # The edges: what other libraries' files, ONNX, the server and its page read of a kind.

    @property
    def per_token(self) -> bool:
        """Return whether the head's outputs are per token (N, K) instead of per sequence (B, K)."""
        return self.form in PER_TOKEN

    def write(self, learner: Learner, tokenizer: AnyTokenizer, prompts: Sequence[Example]) -> Sequence[Any]:
        """Return what `decode` reads of each prompt, for a kind of the form text: the text written after it."""
        raise NotImplementedError

    @property
    def request_fields(self) -> tuple[str, ...]:
        """Return the names of a request's texts, in the order in which `Task.record_of` reads them."""
        return tuple(field.name for field in self.edge.request) if self.edge and self.edge.is_own else ("text",)

    @property
    def training_facts(self) -> dict[str, list[Any]]:
        """Return facts on the training data for /v1/models, as far as they are known.

        `columns`: those behind the `request_fields`. `range`: the lowest and the highest number that it learnt from.
        """
        return {}

    def row(self, values: Mapping[str, Any], *, where: str) -> Record:
        """Return the record of a row of a request, by column, if the task `reads_rows`; `where` is for messages.

        Raises UserError or ValueError when a column is missing.
        """
        raise NotImplementedError

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction as the fields of an HTTP answer: by default the attributes that `edge` names."""
        return {field.name: getattr(prediction, field.name) for field in (self.edge.answer if self.edge else ())}

    def explain(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the scores behind a prediction for a record's `examples`, for attributions.

        `label`: explain the score of this label instead of the predicted one. Raises UserError if there is no such
        label, or the kind declares no scores.
        """
        raise UserError(
            f"This run cannot be explained: its task {self.name} does not implement explain(). Explain a run of "
            "classify, multilabel, regress, tag, span or choose.",
            code="unsupported-model",
        )

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> tuple[Self, tuple[int, ...]]:
        """Return the task for another library's model with these outputs, and their new order, () for unchanged.

        Raises ValueError with the reason if the kind has no such task.
        """
        raise NotImplementedError
