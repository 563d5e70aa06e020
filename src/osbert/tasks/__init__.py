"""What a model is fine-tuned for. One task a file; the file's name is the task's name.

A task is an objective that can also be scored and decoded. The kinds (classify, regress) take one's own files; a named
data set is a few lines on a kind: where its files and columns are, and what its labels are called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.pack import Packer, Run
from osbert.data.table import Reading, Row, Table, open_table
from osbert.data.table_columns import Columns, choose
from osbert.data.table_format import Choice
from osbert.data.table_splits import find_splits, hold_out
from osbert.errors import Problems, UserError
from osbert.objectives import Objective

__all__ = ["Prediction", "Record", "TableTask", "Task", "load"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One item of a data set, before tokenization.

    `number`: its place in the split. `texts`: its text, or its texts in the order the model reads them. `label`: what
    is to be predicted, None when unknown. `path` and `line`: where it stands, for messages.
    """

    number: int
    texts: tuple[str, ...]
    label: Any = None
    path: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """Return the place as messages show it."""
        return f"{self.path}, line {self.line}" if self.path else f"record {self.number}"


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a task says of a record.

    `value`: a label's name, or a number. `probabilities`: of every label by name, where there are labels. `truncated`:
    pieces of the record that did not fit and were not read.
    """

    value: Any
    probabilities: Mapping[str, float] = field(default_factory=dict)
    truncated: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, ready for JSON."""
        return {"value": self.value, "probabilities": dict(self.probabilities), "truncated": self.truncated}


@dataclass(frozen=True, kw_only=True)
class Task(Objective):
    """Records -> examples -> outputs -> predictions -> metrics. Its fields are its settings.

    The target it writes into examples, and its head in a Learner, go by its `name`.
    """

    per_token: ClassVar[bool] = False
    """Whether the head's outputs are per token (N, K) instead of per sequence (B, K)."""

    data: str = ""
    """The file or folder with the task's data."""
    length: int = 512
    """Most tokens in a sequence, [CLS] and [SEP] included; never more than the model can read."""

    def __post_init__(self) -> None:
        """Refuse a length into which no pair fits."""
        if self.length < 5:
            raise ValueError(f"length must be at least 5 (two texts, [CLS] and two [SEP]), not {self.length}")

    @property
    def name(self) -> str:
        """Return the file's name, such as "sst2"."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def criterion(self) -> str:
        """Return the metric by which the best epoch is kept; higher is better."""
        raise NotImplementedError

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the records of "train", "dev", "test", or "all" (every row of `data`, one file).

        Whatever cannot be used is noted in `problems`, with file and line, and left out.
        """
        raise NotImplementedError

    def fitted(self, records: Sequence[Record]) -> Self:
        """Return the task with what it learns from its training records, such as the labels' names."""
        return self

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        """Note each record whose label this task does not know."""

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the sequences of a record, with targets under the task's name if the label is known.

        Raises UserError when the record has another number of texts than the task reads.
        """
        raise NotImplementedError

    def decode(self, outputs: Sequence[NDArray[np.floating]], record: Record) -> Prediction:
        """Return the prediction from the head's outputs for the record's sequences, in `encode`'s order.

        Each output is (K,), or (n, K) for the n tokens of a sequence if `per_token`.
        """
        raise NotImplementedError

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the scores of predictions against the labels of their records."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TableTask(Task):
    """A task on rows of a table: one text or a pair, and one label. Its fields say how to read one's own files."""

    numbers: ClassVar[bool] = False
    """Whether the label is a number."""

    text: str = ""
    """The column with the text; found by its name when left open."""
    pair: str = ""
    """The column with the second text, where texts come in pairs."""
    label: str = ""
    """The column with the label; found by its name when left open."""
    delimiter: str = ""
    """What separates the cells; found by looking when left open."""
    header: Choice = "auto"
    """Whether the first line names the columns: auto, yes or no."""
    quotes: Choice = "auto"
    """Whether double quotes around a cell belong to the format: auto, yes or no."""
    encoding: str = ""
    """The file's encoding, such as gb18030; UTF-8 or what its byte order mark says when left open."""
    held_out: float = 0.1
    """Share of the training rows kept for development when there is no development file."""
    skip_empty: bool = False
    """Leave rows without text out, instead of refusing the file."""

    def __post_init__(self) -> None:
        """Refuse a share that leaves one side empty, and what no task can have."""
        super().__post_init__()
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is a share between 0 and 1, not {self.held_out}")

    def open(self, path: Path) -> Table:
        """Open a file of the user's as these settings say."""
        reading = Reading(
            delimiter=self.delimiter,
            header=self.header,
            quotes=self.quotes,
            encoding=self.encoding,
            names=tuple(filter(None, (self.text, self.pair, self.label))),
        )
        return open_table(path, reading)

    def columns(self, table: Table, *, labelled: bool) -> Columns:
        """Return the columns that hold text, pair and label; without `labelled` the label may be absent."""
        asked = Columns(text=self.text, pair=self.pair, label=self.label)
        return choose(table.columns, asked=asked, path=str(table.path), numbers=self.numbers, labelled=labelled)

    def resolved(self) -> Self:
        """Return the task with the columns of its training file written down by name."""
        columns = self.columns(self.open(self._file("train")), labelled=True)
        return dataclasses.replace(self, text=columns.text, pair=columns.pair, label=columns.label)

    def findings(self) -> list[str]:
        """Return in words what was found: each file's form, the columns in use, where development rows come from."""
        files = find_splits(Path(self.data))
        lines = [self.open(path).describe() for split, path in files.items() if split != "test"]
        lines.append(self.columns(self.open(self._file("train")), labelled=True).describe())
        if "dev" not in files:
            kind = "drawn at random" if self.numbers else "of every label"
            lines.append(f"no file for development: {self.held_out:.0%} of the training rows, {kind}, are held out")
        return lines

    def moved(self, data: Path, given: Mapping[str, Any]) -> Self:
        """Return the task for other data, a file or a folder: how to read the training file is forgotten.

        The columns keep their names where the new file has them, else they are found anew; `given` overrides.

        Raises UserError when the model reads pairs and the file has single texts, or the other way round.
        """
        forms = {name: _default(type(self), name) for name in ("delimiter", "header", "quotes", "encoding")}
        task = dataclasses.replace(self, data=str(data), **(forms | dict(given)))
        if not data.is_file():
            return task
        table = task.open(data)
        kept = {"text": self.text, "pair": self.pair} if {self.text, self.pair} - {""} <= {*table.columns} else {}
        label = self.label if self.label in table.columns else ""
        task = dataclasses.replace(task, **({"text": "", "pair": "", "label": label} | kept | dict(given)))
        columns = task.columns(table, labelled=False)
        if self.text and bool(columns.pair) != bool(self.pair):
            wanted = "pairs of texts: give --text NAME --pair NAME" if self.pair else "single texts: give --text NAME"
            raise UserError(
                f"{data} has the columns {', '.join(table.columns)}; in use are {', '.join(columns.texts)}. "
                f"The model was trained on {wanted}."
            )
        return dataclasses.replace(task, text=columns.text, pair=columns.pair)

    def value(self, text: str) -> Any:
        """Return the label that a cell stands for; raises ValueError, saying why, when it stands for none."""
        return text

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the rows of a split; without a development file it is held out of the training rows."""
        files = find_splits(Path(self.data))
        source = "train" if split == "dev" and "dev" not in files else split
        path = self._file(source)
        shared = split != source  # the rows were read for training already, and their problems told
        records = self._read(path, Problems(heading="") if shared else problems, labelled=source != "test")
        if split in ("train", "dev") and "dev" not in files:
            rows = list(records)
            held = hold_out([row.label for row in rows], self.held_out, stratified=not self.numbers)
            records = iter([row for row, out in zip(rows, held) if out == (split == "dev")])
        for number, record in enumerate(records):
            yield dataclasses.replace(record, number=number)

    def record(self, row: Row, columns: Columns, *, path: str = "", number: int = 0) -> Record:
        """Return the record of a row; raises ValueError, saying why, when its label or text cannot be used."""
        missing = [name for name in (*columns.texts, columns.label) if name and name not in row.values]
        if missing:
            raise ValueError(f"there is no '{missing[0]}' in it")
        texts = tuple(row.values[name] for name in columns.texts)
        label = self.value(row.values[columns.label].strip()) if columns.label else None
        return Record(number=number, texts=texts, label=label, path=path, line=row.line)

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return the one sequence of a text or a pair."""
        runs = [_run(text, packer) for text in record.texts]
        if len(runs) == 1:
            return [packer.single(runs[0].ids, runs[0].words, record=record.number)]
        if len(runs) == 2:
            return [packer.pair(runs[0], runs[1], record=record.number)]
        raise UserError(f"{record.place}: {self.name} reads one text or a pair, not {len(runs)} texts.")

    def _file(self, split: str) -> Path:
        files = find_splits(Path(self.data))
        path = files.get(split, files.get("all"))
        if path is None or (split == "test" and "all" in files):
            raise UserError(f"{self.data} has no file for {split}; it has {', '.join(files)}.")
        return path

    def _read(self, path: Path, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        table = self.open(path)
        columns = self.columns(table, labelled=labelled)
        for row in table.rows(problems):
            try:
                record = self.record(row, columns, path=str(path))
            except ValueError as error:
                problems.add(f"{path}, line {row.line}: {error}.")
                continue
            if any(text.strip() for text in record.texts):
                yield record
            elif not self.skip_empty:
                problems.add(f"{path}, line {row.line}: the text is empty. Remove the row, or give --skip-empty.")


def load(task: Task, splits: Sequence[str], *, fit: bool = True) -> tuple[Task, dict[str, list[Record]]]:
    """Read the splits, training first, and return the task, fitted if there are training rows, with their records.

    `fit` is False for a task that learnt its labels or its scale already.

    Raises one UserError that lists every problem of every file, labels unknown in training included.
    """
    problems = Problems(heading=f"{task.data} cannot be used for {task.name}")
    records: dict[str, list[Record]] = {}
    for split in splits:
        try:
            records[split] = list(task.records(split, problems))
        except UserError as error:
            problems.add(str(error))
    if fit and records.get("train"):
        try:
            task = task.fitted(records["train"])
        except UserError as error:
            problems.add(str(error))
    for split, found in records.items():
        if found:
            task.check(found, problems)
        elif not problems.count:
            problems.add(
                f"the {split} rows: there are none. Put rows into that file. Without a file for development, a "
                "share of the training rows is held out (--held-out), if a label has two rows or more."
            )
    problems.stop_if_any()
    return task, records


def _run(text: str, packer: Packer) -> Run:
    ids = packer.tokenizer.encode(text)
    return Run(ids, ~packer.tokenizer.continuation[ids])


def _default(kind: type, name: str) -> Any:
    (default,) = [field.default for field in dataclasses.fields(kind) if field.name == name]
    return default
