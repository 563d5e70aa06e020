"""The common part of tasks on tables: rows of CSV, TSV or JSON lines become records."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any, ClassVar

from osbert.data.example import Booleans
from osbert.data.long_texts import Long
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError, nearest
from osbert.files import file_stamp
from osbert.guarded import parse_json
from osbert.reading.columns import TextColumns
from osbert.reading.form import Choice, plain_suffix
from osbert.reading.splits import USUAL, Names, find_splits, hold_out, is_test, plain_name
from osbert.reading.table import Origin, Row, Table, TableReading, open_table, require_columns
from osbert.tasks import Description, Inputs, Record, Source, Task
from osbert.tasks.tables.classes import list_counts, parse_list
from osbert.terminal import one_line
from osbert.text.normalize import is_blank


@dataclass(frozen=True, kw_only=True)
class DataSetLayout:
    """The known layout of files; for the user's own tables only the usual names."""

    files: Names = field(default_factory=lambda: USUAL)
    """The name of each split's file, in lower case and without suffix."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Split -> another name of its file, if there is none in `files`."""
    columns: tuple[TextColumns, ...] = ()
    """The columns to read, in each form in which the data set is published."""
    unlabelled: tuple[str, ...] = ()
    """The values of the label column that mean no label."""
    bare_quotes: bool = False
    """Whether .tsv and .txt files are tab-separated with quotes that are plain characters."""
    surplus: int = 0
    """Number of extra cells at the end of some rows of a published file."""
    lenient: bool = False
    """Whether the files are known to have unusable rows: these are left out and counted if they are at most 1 %."""

    def find(self, columns: Sequence[str], *, labelled: bool) -> TextColumns | None:
        """Return the first form whose columns all exist; without `labelled` the label may be absent."""
        for form in self.columns:
            if {*form.texts} <= {*columns} and (form.label in columns or not labelled):
                return form if form.label in columns else replace(form, label="")
        return None


READING = ("delimiter", "header", "quotes", "encoding")
"""The settings that read a file's form."""
SKIP = " Remove the row, or fine-tune with --skip-empty, which leaves such rows out."
"""Advice for a row without text."""
UNLABELLED = " Write it, remove the row, or fine-tune with --skip-unlabelled, which leaves such rows out."
"""Advice for a row without a label."""


class UnlabelledRow(ValueError):
    """A row lacks a label that is needed."""


def require_cells(row: Row, columns: Sequence[str], *, labels: Sequence[str] = ()) -> None:
    """Raise ValueError for the first of these columns that a row lacks, and UnlabelledRow for one of the `labels`.

    "" is no column.
    """
    for error, names in ((ValueError, columns), (UnlabelledRow, labels)):
        if missing := [name for name in names if name and name not in row.values]:
            raise error(f"there is no '{missing[0]}' in it")


def row_texts(row: Row, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the texts in some columns of a row. Raises ValueError if one is missing, or is a list or an object."""
    require_cells(row, columns)
    if nested := row.describe_nested(columns):
        raise ValueError(nested)
    return tuple(row.values[name] for name in columns)


def parse_cell(cell: str) -> Any:
    """Parse the JSON of a cell, None if it is not JSON.

    >>> parse_cell('["a", "b"]'), parse_cell("a, b")
    (['a', 'b'], None)
    """
    try:
        return parse_json(cell)
    except JSONDecodeError:
        return None


def cell_texts(row: Row, name: str) -> list[str]:
    """Return the text of a cell, or the texts of its list. Raises ValueError for a list of other values."""
    if name not in row.nested:
        return [row.values[name]]
    # `source` has the list itself; without it the cell has the list as JSON.
    texts = row.source.get(name) or parse_cell(row.values[name])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"'{name}' is no text and no list of texts")
    return texts


def listed_texts(row: Row, name: str) -> list[str]:
    """Return the texts of a cell as `cell_texts`, also of a list that a cell of a CSV file spells, as pandas does."""
    texts = None if row.source or row.record else parse_list(row.values[name].strip())
    return cell_texts(row, name) if texts is None or not all(isinstance(text, str) for text in texts) else texts


class RowCounts(Problems):
    """Counts the rows of a table: those `kept`, the unusable ones, and among these the `empty` ones.

    Added problems are also added to `problems`; rows that the settings skip are only counted.
    """

    def __init__(self, problems: Problems) -> None:
        """Start at 0 rows; `problems` receives every problem that is added."""
        super().__init__(heading="", limit=1)
        self.problems = problems
        self.kept = self.empty = 0

    def add(self, message: str, *, code: str = "unusable-row") -> None:
        super().add(message, code=code)
        self.problems.add(message, code=code)

    def note(self, message: str, *, code: str, skipped: bool) -> None:
        """Report an unusable row, or only count it if the settings skip such rows."""
        if skipped:
            super().add(message, code=code)
        else:
            self.add(message, code=code)


class TableSource(Source):
    """Reads tables: files, or rows in memory. The form of a file is detected once, and again if the file has changed.

    A kind defines `named`, `columns` and `record`.
    """

    task: TableTask
    indivisible: ClassVar[str] = "no label has two rows (is --label right? for numbers: osbert finetune regress)"
    forms: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """The settings that name columns of labels, by the forms of rows, of which a table has one."""
    redetected: ClassVar[tuple[str, ...]] = ()
    """The settings that name columns and become empty, so that they are detected again, for a table without these."""

    def __init__(self, task: Task, given: Mapping[str, Origin] | None = None) -> None:
        super().__init__(task, given)
        self._tables: dict[Any, Table] = {}
        self._counts: dict[tuple[str, bool], RowCounts] = {}

    @property
    def split_names(self) -> Names:  # type: ignore[override]
        """Return the accepted names of splits for data in memory: those of the published files."""
        return self.task.layout.files

    @property
    def named(self) -> tuple[str, ...]:
        """Return possible names in a header: the columns that the user named."""
        raise NotImplementedError

    def columns(self, table: Table, *, labelled: bool) -> Any:
        """Return the columns to read: a frozen dataclass with a field `label` and a method `describe`.

        `describe(labelled=False)` mentions that the label, if there is one, is not read.
        Without `labelled` the label may be absent; it is then "".
        Raises UserError listing the columns if they cannot be detected.
        """
        raise NotImplementedError

    def record(self, row: Row, columns: Any, *, path: str = "") -> Record:
        """Return the record of a row. Raises ValueError with the reason if its label or text is unusable.

        Raises UnlabelledRow, a ValueError, if `columns` name a label and the row has none.
        """
        raise NotImplementedError

    def find_files(self, data: Path) -> Mapping[str, Path]:
        return find_splits(data, self.task.layout.files, instead=self.task.layout.instead)

    def open(self, origin: Origin) -> Table:
        """Open a table with the task's settings; a file that has not changed is opened once."""
        if isinstance(origin, Table):
            return require_columns(origin)
        task, layout = self.task, self.task.layout
        published = {name for names in layout.files.values() for name in names} | {*layout.instead.values()}
        # Of published files those that are tab-separated have quotes that are plain characters.
        plain = layout.bare_quotes and plain_suffix(origin) in (".tsv", ".txt") and plain_name(origin) in published
        reading = TableReading(
            delimiter=task.delimiter or ("\t" if plain else ""),
            header=task.header,
            quotes="no" if plain and task.quotes == "auto" else task.quotes,
            encoding=task.encoding,
            surplus=layout.surplus if plain else 0,
        )
        # A changed file has another stamp, and other settings read another table.
        key = (origin, reading, file_stamp(origin))
        if key not in self._tables:
            # Names of columns help to detect whether the first line is a header.
            named = dataclasses.replace(reading, names=tuple(filter(None, self.named)))
            self._tables[key] = require_columns(open_table(origin, named))
        return self._tables[key]

    def cells(self, column: str) -> Mapping[int, str]:
        table = self.open(self.file("train"))
        if column not in table.columns:
            raise UserError(
                f"{table.called} has no column '{column}'; it has {', '.join(table.columns)}."
                f"{nearest(column, table.columns)}",
                code="unknown-column",
            )
        return {row.line: row.values.get(column, "") for row in table.rows(Problems(heading=""))}

    def findings(self) -> list[str]:
        files = self.files()
        lines = [self.open(origin).describe() for split, origin in files.items() if not is_test(split)]
        lines += dict.fromkeys([*self.left_out("train"), *self.left_out("dev")])  # of one file for both once
        lines.append(self.columns(self.open(self.file("train")), labelled=True).describe())
        return lines if "dev" in files else [*lines, self.describe_held_out()]

    def describe_held_out(self) -> str:
        kind = "drawn at random" if self.task.numbers else "drawn label by label"
        remark = f"{100 * self.task.held_out:g}% of the training {self.task.counted}, {kind}, are held out"
        return f"no file for development: {remark}"

    def left_out(self, split: str) -> list[str]:
        task = self.task
        if not (task.layout.lenient or task.skip_empty or task.skip_unlabelled):
            return []
        lines = []
        for name, origin in self.split_origins(split).items():
            labelled = not is_test(name)
            counts = self._count_rows(origin, labelled=labelled)
            if counts.count:
                # The advice is for rows that are not left out.
                first = counts.messages[0].removesuffix(SKIP).removesuffix(UNLABELLED)
                lines.append(f"rows left out: {counts.count:,}, the first being {first}")
            if counts.count > counts.kept:
                table, total = self.open(origin), counts.kept + counts.count
                fraction = f"{counts.count:,} of {total:,}; {counts.kept:,} are kept"
                line = f"most rows of {table.called} are left out: {fraction}."
                if unlabelled := counts.count - counts.empty if task.skip_unlabelled and labelled else 0:
                    label = self.columns(table, labelled=True).label
                    line += (
                        f" {unlabelled:,} have no label in the column '{label}'. If another column holds the labels, "
                        "give --label NAME."
                    )
                lines.append(line)
        return lines

    def split_origins(self, split: str) -> dict[str, Origin]:
        """Return the tables of a split: "dev" has dev_mismatched too, and each has "all", which is split later."""
        return {name: origin for name, origin in self.files().items() if name.startswith(split) or name == "all"}

    def _count_rows(self, origin: Origin, *, labelled: bool) -> RowCounts:
        """Return the counts of a file's rows. The file is read if it has not been read yet."""
        key = (self.open(origin).called, labelled)
        if key not in self._counts:
            # Reading to the end fills `_counts`.
            for _ in self.read(origin, Problems(heading="", limit=0), labelled=labelled):
                pass
        return self._counts[key]

    def switch_data(self, data: Path | Mapping[str, Origin], given: Mapping[str, Any]) -> Task:
        """Return the task for other data, a file or a folder, without the settings that read the training file.

        Of a single table, the columns that it lacks are detected again; `given` overrides.
        """
        # A setting of one form of rows leaves none of the others.
        other_forms = [
            name
            for form in self.forms
            if any(given.get(option) for other in self.forms if other != form for option in other)
            for name in form
        ]
        defaults = {name: getattr(type(self.task), name) for name in (*READING, *other_forms)}
        task = super().switch_data(data, defaults | dict(given))
        source = task.source
        if source.alone is None:
            return task
        assert isinstance(source, TableSource)
        columns = source.fit_columns(source.alone, self.task, {*given, *other_forms})
        return source.attach_to(dataclasses.replace(task, **columns)) if columns else task

    def fit_columns(self, origin: Origin, before: Any, given: Collection[str]) -> dict[str, Any]:
        """Return the settings that name columns, changed for a table that the task has been switched to.

        `before`: the task of the table before. `given`: the settings that the user has chosen, which stay.
        """
        values = {name: getattr(self.task, name) for name in self.redetected if name not in given}
        names = {name: {value} if isinstance(value, str) else {*value} for name, value in values.items()}
        columns = {*self.open(origin).columns} if names else set()
        return {name: type(values[name])() for name in values if not names[name] <= columns}

    def mark_held_out(self, records: Sequence[Record]) -> Booleans:
        """Return which of the training rows (n,) are held out: a fraction of each label, or of all rows."""
        labels = [record.label for record in records]
        return hold_out(labels, self.task.held_out, stratified=not self.task.numbers)

    def inputs(self, data: Origin) -> Inputs:
        """Return a table of plain input; a row without any text has no record."""
        table = self.open(data)
        all_columns = self.columns(table, labelled=False)
        columns = dataclasses.replace(all_columns, label="")

        def record(row: Row) -> Record | None:
            row_record = self._record(row, columns, table)
            return None if self.describe_empty(row_record, labelled=False) else row_record

        return Inputs.of(table, record, all_columns.describe(labelled=False), lines=table.format.objects)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> Iterator[Record]:
        table, lenient = self.open(origin), labelled and self.task.layout.lenient
        columns = self.columns(table, labelled=labelled)
        # Problems of a lenient set are held back until the whole file is read: the fraction decides on them.
        left_out = Problems(heading="") if lenient else problems
        counts = RowCounts(left_out)
        for row in table.rows(counts):
            if row.blank:
                continue
            try:
                record = self._record(row, columns, table)
                if labelled and self.task.layout.unlabelled and record.label is None:
                    raise UnlabelledRow("the row has no label")
            # Before ValueError, of which it is a subclass.
            except UnlabelledRow as error:
                advice = UNLABELLED if self.task.skip_unlabelled else self.advise_unlabelled(table)
                message = f"{table.place(row.line)}: {one_line(str(error))}.{advice}"
                counts.note(message, code="missing-label", skipped=self.task.skip_unlabelled)
            except ValueError as error:
                counts.add(f"{table.place(row.line)}: {one_line(str(error))}.", code="unusable-row")
            else:
                if not (empty := self.describe_empty(record, labelled=labelled)):
                    counts.kept += 1
                    yield record
                    continue
                counts.empty += 1
                counts.note(f"{table.place(row.line)}: {empty}.{SKIP}", code="empty-text", skipped=self.task.skip_empty)
        # Only reached if the caller reads all rows: counts of a part are not kept.
        self._counts[table.called, labelled] = counts
        # Above 1 % of the rows the file is probably not the published one: report everything.
        if lenient and left_out.count * 100 > counts.kept:
            code, *_ = left_out.codes
            for message in left_out.messages:
                problems.add(message, code=code)
            problems.codes |= left_out.codes

    def describe_empty(self, record: Record, *, labelled: bool) -> str:
        """Describe an empty text, "" if the row is usable: training rows need every text, others at least one."""
        has_text = [not is_blank(text) for text in record.texts]
        if not any(has_text):
            return "the text is empty"
        return "" if all(has_text) or not labelled else "one of its texts is empty"

    def advise_unlabelled(self, table: Table) -> str:
        """Return what to do about a row of a table that has no label."""
        return UNLABELLED

    def _record(self, row: Row, columns: Any, table: Table) -> Record:
        record = self.record(row, columns, path=table.origin)
        return record if record.unit == table.unit else dataclasses.replace(record, unit=table.unit)


class TableDescription(Description):
    """Describes rows of a table with their labels."""

    task: TableTask

    def describe_split(self, records: Sequence[Record]) -> str:
        if self.task.numbers:
            numbers = {record.label for record in records if isinstance(record.label, float)}  # not lists of them
            ends = f" ({min(numbers):g} to {max(numbers):g})" if len(numbers) > 1 else ""
            return f"{super().describe_split(records)}{ends}"
        counts = Counter(record.label for record in records)
        return f"{super().describe_split(records)} ({list_counts(counts)})"

    @property
    def unread(self) -> str:
        return "in the middle" if self.task.long == "head+tail" else super().unread


@dataclass(frozen=True, kw_only=True)
class TableTask(Task):
    """A task on rows of a table. Its settings describe how files are read; those of a kind name the columns.

    A kind's `reader` is a TableSource.
    """

    numbers: ClassVar[bool] = False
    """Whether the label is a number."""
    counted: ClassVar[str] = "rows"
    """The name of the items that are counted."""
    layout: ClassVar[DataSetLayout] = DataSetLayout()
    """The known layout of a published data set's files."""
    too_long: ClassVar[str] = ""
    """The message for a record that must not be truncated (`long`): `count` surplus pieces, `length` tokens."""
    reader: ClassVar[type[Source]] = TableSource
    describer: ClassVar[type[Description]] = TableDescription

    delimiter: str = ""
    """The separator of cells; detected if not given."""
    header: Choice = "auto"
    """Whether the first line names the columns: auto, yes or no."""
    quotes: Choice = "auto"
    """Whether double quotes around a cell belong to the format: auto, yes or no."""
    encoding: str = ""
    """The file's encoding, such as gb18030; by default UTF-8 or that of its byte order mark."""
    held_out: float = 0.1
    """Fraction of the training rows held out for development if there is no development file."""
    skip_empty: bool = False
    """Leave out rows with an empty text, instead of rejecting the file."""
    skip_unlabelled: bool = False
    """Leave out rows without a label, instead of rejecting the file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be a fraction between 0 and 1, not {self.held_out}")

    @property
    def long(self) -> Long:
        """Return what happens to a text that does not fit. Kinds with a choice have a setting of this name."""
        return "truncate"


def note_long(task: Task, records: Sequence[Record], packer: Packer, problems: Problems) -> None:
    """Report each record that does not fit into a sequence to `problems`, if the task has long = "error"."""
    if not isinstance(task, TableTask) or task.long != "error":
        return
    for record in records:
        # Encoding truncates, whatever `long` is, and counts the pieces.
        if count := sum(example.truncated for example in task.encode(record, packer)):
            message = task.too_long.format(count=count, length=packer.length)
            problems.add(f"{record.place}: {message}", code="text-too-long")
