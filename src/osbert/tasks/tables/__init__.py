"""What tasks on tables stand on: rows of CSV, TSV or JSON lines become records; no task itself."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from osbert.data.example import Booleans
from osbert.errors import Problems, UserError
from osbert.reading.form import Choice
from osbert.reading.held_out import hold_out
from osbert.reading.table import Reading, Row, Table, open_table
from osbert.tasks import Inputs, Record, Task
from osbert.tasks.tables.layout import Layout
from osbert.terminal import one_line

SKIP = " Remove the row, or fine-tune with --skip-empty, which leaves such rows out."
"""What to do about a row without text."""
UNLABELLED = " Write it, remove the row, or fine-tune with --skip-unlabelled, which leaves such rows out."
"""What to do about a row without a label."""


class UnlabelledRow(ValueError):
    """A row without a label, where one is needed."""


@dataclass(frozen=True, kw_only=True)
class TableTask(Task):
    """A task on rows of a table. Its fields say how to read one's own files, those of a kind which columns.

    A kind says `named`, `columns` and `record`.
    """

    numbers: ClassVar[bool] = False
    """Whether the label is a number."""
    layout: ClassVar[Layout] = Layout()
    """What is known of the files of a published data set."""

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
    """Leave rows with an empty text out, instead of refusing the file."""
    skip_unlabelled: bool = False
    """Leave rows without a label out, instead of refusing the file."""

    def __post_init__(self) -> None:
        """Refuse a share that leaves one side empty, and what no task can have."""
        super().__post_init__()
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is a share between 0 and 1, not {self.held_out}")

    @property
    def named(self) -> tuple[str, ...]:
        """Return names that a header may hold: the columns that the user named."""
        raise NotImplementedError

    def columns(self, table: Table, *, labelled: bool) -> Any:
        """Return the columns to read: a frozen dataclass with a field `label` and a method `describe`.

        `describe(labelled=False)` says in words that the label, if there is one, is not read.
        Without `labelled` the label may be absent, which is "".
        Raises UserError listing the columns when they cannot be found.
        """
        raise NotImplementedError

    def record(self, row: Row, columns: Any, *, path: str = "") -> Record:
        """Return the record of a row; raises ValueError, saying why, when its label or text cannot be used.

        Raises UnlabelledRow, a ValueError, if `columns` name a label and the row has none.
        """
        raise NotImplementedError

    def split_files(self) -> Mapping[str, Path]:
        """Return the file of each split; one file alone is {"all": file}. UserError when there is none."""
        return self.layout.splits(self.data)

    def open(self, path: Path) -> Table:
        """Open a file of the user's as these settings say."""
        plain = self.layout.plain(path)
        reading = Reading(
            delimiter=self.delimiter or ("\t" if plain else ""),
            header=self.header,
            quotes="no" if plain and self.quotes == "auto" else self.quotes,
            encoding=self.encoding,
            names=tuple(filter(None, self.named)),
            surplus=self.layout.surplus if plain else 0,
        )
        return open_table(path, reading)

    def findings(self) -> list[str]:
        """Return in words what was found: each file's form, the columns in use, where development rows come from."""
        files = self.split_files()
        lines = [self.open(path).describe() for split, path in files.items() if not _is_test(split)]
        lines += dict.fromkeys([*self.left_out("train"), *self.left_out("dev")])  # of one file for both once
        lines.append(self.columns(self.open(self.file("train")), labelled=True).describe())
        if "dev" not in files:
            kind = "drawn at random" if self.numbers else "of every label"
            lines.append(f"no file for development: {self.held_out:.0%} of the training rows, {kind}, are held out")
        return lines

    def left_out(self, split: str) -> list[str]:
        """Return in words how many rows of each file of a split are left out, the first of them, and if it is most."""
        if not (self.layout.lenient or self.skip_empty or self.skip_unlabelled):
            return []
        strict = dataclasses.replace(self, skip_empty=False, skip_unlabelled=False)
        lines = []
        for name, path in self.split_files().items():
            if not (name.startswith(split) or name == "all"):
                continue
            problems = Problems(heading="", shown=1)
            labelled = not _is_test(name)
            kept = sum(1 for _ in strict._rows(path, problems, labelled=labelled))
            if problems.count:
                first = problems.messages[0].removesuffix(SKIP).removesuffix(UNLABELLED)
                lines.append(f"rows left out: {problems.count:,}, the first being {first}")
            if problems.count > kept:
                lines.append(self._mostly_left_out(path, kept, problems.count, labelled=labelled))
        return lines

    def _mostly_left_out(self, path: Path, kept: int, left_out: int, *, labelled: bool) -> str:
        """Return the line on a file of which more rows are left out than kept: another column may hold the labels."""
        total = kept + left_out
        line = f"most rows of {path} are left out: {left_out:,} of {total:,}; {kept:,} are kept"
        unlabelled = Problems(heading="", shown=0)
        if self.skip_unlabelled and labelled:
            strict = dataclasses.replace(self, skip_empty=True, skip_unlabelled=False)
            for _ in strict._rows(path, unlabelled, labelled=True):
                pass
        if not unlabelled.count:
            return f"{line}."
        label = self.columns(self.open(path), labelled=True).label
        return (
            f"{line}. {unlabelled.count:,} have no label in the column '{label}'. If another column holds the labels, "
            "give --label NAME."
        )

    def describe(self, records: Sequence[Record]) -> str:
        """Return how many rows a split has, and of which labels."""
        if self.numbers:
            return super().describe(records)
        labels = Counter(record.label for record in records)
        shares = ", ".join(f"{label} {count:,}" for label, count in sorted(labels.items())[:10])
        more = f" and {len(labels) - 10} more" if len(labels) > 10 else ""
        return f"{super().describe(records)} ({shares}{more})"

    def moved(self, data: Path, given: Mapping[str, Any]) -> Self:
        """Return the task for other data, a file or a folder: how to read the training file is forgotten."""
        forms = {name: _default(type(self), name) for name in ("delimiter", "header", "quotes", "encoding")}
        return super().moved(data, forms | dict(given))

    def shared(self, split: str) -> bool:
        """Return whether the rows of a split are held out of the training file: there is none for development."""
        return split == "dev" and "dev" not in self.split_files()

    def records(self, split: str, problems: Problems) -> Iterator[Record]:
        """Yield the rows of a split; without a development file it is held out of the training rows."""
        records = self.read(self.file("train" if self.shared(split) else split), problems, labelled=not _is_test(split))
        if split in ("train", "dev") and self.shared("dev"):
            rows = list(records)
            records = iter([row for row, out in zip(rows, self.held(rows)) if out == (split == "dev")])
        for number, record in enumerate(records):
            yield dataclasses.replace(record, number=number)

    def held(self, records: Sequence[Record]) -> Booleans:
        """Return which of the training rows (n,) are held out: of each label its share, or of all rows alike."""
        return hold_out([record.label for record in records], self.held_out, stratified=not self.numbers)

    def inputs(self, path: Path) -> Inputs:
        """Return a table of plain input; a row without any text has no record."""
        table = self.open(path)
        found = self.columns(table, labelled=False)
        columns = dataclasses.replace(found, label="")

        def rows(problems: Problems) -> Iterator[tuple[Row, Record | None]]:
            for row in table.rows(problems):
                try:
                    record = self.record(row, columns, path=str(path))
                except ValueError as error:
                    problems.add(f"{path}, line {row.line}: {one_line(str(error))}.")
                else:
                    yield row, None if _empty(record, labelled=False) else record

        return Inputs(
            describe=f"{table.describe()}; {found.describe(labelled=False)}",
            columns=table.columns,
            lines=table.format.kind == "jsonl",
            rows=rows,
            table=table,
        )

    def file(self, split: str) -> Path:
        """Return the file of a split; raises UserError when there is none."""
        files = self.split_files()
        path = files.get(split, files.get("all"))
        if path is None or (_is_test(split) and "all" in files):
            raise UserError(f"{self.data} has no file for {split}; it has {', '.join(files)}.")
        return path

    def read(self, path: Path, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        """Yield the records of a file; what cannot be used is noted in `problems`."""
        if not (labelled and self.layout.lenient):
            yield from self._rows(path, problems, labelled=labelled)
            return
        kept, left_out = 0, Problems(heading="")
        for record in self._rows(path, left_out, labelled=labelled):
            kept += 1
            yield record
        if left_out.count * 100 > kept:
            for message in left_out.messages:
                problems.add(message)

    def _rows(self, path: Path, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        table = self.open(path)
        columns = self.columns(table, labelled=labelled)
        for row in table.rows(problems):
            if row.blank:
                continue
            try:
                record = self.record(row, columns, path=str(path))
                if labelled and self.layout.unlabelled and record.label is None:
                    raise UnlabelledRow("the row has no label")
            except UnlabelledRow as error:
                if not self.skip_unlabelled:
                    problems.add(f"{path}, line {row.line}: {one_line(str(error))}.{UNLABELLED}")
                continue
            except ValueError as error:
                problems.add(f"{path}, line {row.line}: {one_line(str(error))}.")
                continue
            if not (empty := _empty(record, labelled=labelled)):
                yield record
            elif not self.skip_empty:
                problems.add(f"{path}, line {row.line}: {empty}.{SKIP}")


def _is_test(split: str) -> bool:
    return split.startswith("test")  # of some sets there are two


def _empty(record: Record, *, labelled: bool) -> str:
    """Return what is empty that must not be, "" if nothing: what is learnt needs every text, what is asked for any."""
    there = [bool(text.strip()) for text in record.texts]
    if not any(there):
        return "the text is empty"
    return "" if all(there) or not labelled else "one of its texts is empty"


def _default(kind: type, name: str) -> Any:
    (default,) = [field.default for field in dataclasses.fields(kind) if field.name == name]
    return default
