"""Files of texts: their rows and columns, and the jobs that compute a result for each text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from osbert.errors import Problems, UserError
from osbert.inference.embedder import Embedder
from osbert.inference.engine import Engine
from osbert.inference.vectors.files import ENDS
from osbert.reading.columns import TextColumns, choose, is_known
from osbert.reading.data_file import DataFile
from osbert.reading.table import Row, Table, TableReading, open_table, require_columns
from osbert.runs.contract import Watch
from osbert.runs.file_options import TextOptions
from osbert.runs.rows.forms.contract import RowLayout, free_names
from osbert.runs.rows.standard_input import NAME
from osbert.runs.rows.table import TableJob
from osbert.terminal import format_count

TAKEN = ("vectors", "vector", "lines", "line", "text", "pair", "starts", "ids", "settings")
"""The names that columns of a file of vectors have."""

WINDOW = 256
"""Rows that are read at a time, so that texts of similar length share a batch."""


@dataclass(kw_only=True)
class TextRows:
    """The rows of a table and their columns of texts. `count`: the rows with text, known after `check`.

    `before`: the file's content when it was opened, which every pass must find again.
    """

    before: DataFile
    table: Table
    columns: TextColumns
    count: int = 0

    @classmethod
    def open(cls, path: Path, options: TextOptions, *, name: str = "") -> TextRows:
        """Open a file, which messages call `name`. Raises UserError if it has no column of texts."""
        reading = TableReading(
            delimiter=options.delimiter,
            header=options.header,
            quotes=options.quotes,
            encoding=options.encoding,
            names=tuple(filter(None, (options.text, options.pair))),
        )
        before = DataFile(path, name=name)
        table = require_columns(open_table(before, reading))
        user_columns = TextColumns(text=options.text, pair=options.pair)
        columns = choose(table.columns, user_columns=user_columns, path=before.name, labelled=False)
        return cls(before=before, table=table, columns=TextColumns(text=columns.text, pair=columns.pair))

    @property
    def name(self) -> str:
        """Return what messages call the file."""
        return self.before.name

    def other_columns(self, taken: Sequence[str] = TAKEN) -> dict[str, str]:
        """Return the columns that hold no texts, by names that a file of vectors, which has those taken, may use."""
        other_names = [name for name in self.table.columns if name not in self.columns.texts]
        clashing = [name for name in other_names if name in taken or name.endswith(ENDS)]
        free = dict(zip(clashing, free_names(clashing, {*taken, *other_names})))
        return {free.get(name, name): name for name in other_names}

    def layout(self, headings: Sequence[str]) -> RowLayout:
        """Return the layout of an output with these rows and results under `headings`."""
        return RowLayout(file=self.before.path, columns=self.table.columns, headings=headings, table=self.table)

    def describe(self) -> str:
        """Describe the file, and a first line of standard input that may be a header."""
        description = (
            f"{self.name}: {self.table.format.describe()}; {self.columns.describe().removesuffix(', no label')}"
        )
        first = next(self.rows(), None) if self.table.format.kind == "lines" and self.name == NAME else None
        if first is None or not is_known(word := first.values[self.columns.text].strip()):
            return description
        return f"{description}; its first line, '{word}', is a text as well: if it is a header, give --form csv"

    def check(self) -> list[str]:
        """Read the whole file; return a remark on blank lines, which have no vector.

        Raises one UserError with every row that cannot be used.
        """
        problems = Problems(heading=f"{self.name} cannot be used")
        blank = 0
        for row in self._usable(problems):
            blank += row.blank
            self.count += not row.blank
        problems.stop_if_any()
        if not self.count:
            raise UserError(f"{self.name} has no rows with text.", code="no-data")
        lines = "line has" if blank == 1 else "lines have"
        return [f"{blank:,} blank {lines} no vector; `lines` says which line each row is of."] if blank else []

    def fit(self, engine: Engine) -> None:
        """Raise UserError when the rows are pairs and the model reads none."""
        if self.columns.pair and engine.backend.architecture.segments == 1:
            raise UserError(
                f"The model in {engine.folder} was trained without a second segment (segments = 1): it reads no pairs.",
                code="unsupported-model",
            )

    def refuse_long(self, embedder: Embedder) -> None:
        """Raise one UserError that names every text which does not fit."""
        problems = Problems(heading="These texts are too long (--long error)")
        for row in self.rows():
            sequences = embedder.sequences([row.values[name] for name in self.columns.texts], 0)
            if cut := sum(example.truncated for example in sequences):
                problems.add(
                    f"{self.name}, line {row.line}: {format_count(cut, 'piece')} more than fit into "
                    f"{embedder.packer.length} tokens. Shorten the text, or give --long truncate, head+tail or window.",
                    code="text-too-long",
                )
        problems.stop_if_any()

    def rows(self, *, blanks: bool = False) -> Iterator[Row]:
        """Yield the rows one at a time, without blank lines unless `blanks`; they have been checked.

        Raises UserError where a row can no longer be read.
        """
        problems = self.before.problems()
        for row in self._usable(problems):
            problems.stop_if_any()
            if blanks or not row.blank:
                yield row
        problems.stop_if_any()

    def _usable(self, problems: Problems) -> Iterator[Row]:
        """Yield the rows that have every column of texts; the others go to `problems`."""
        for row in self.table.rows(problems):
            names = () if row.blank else self.columns.texts
            if missing := [name for name in names if name not in row.values]:
                problems.add(f"{self.table.place(row.line)}: there is no '{missing[0]}' in it.", code="unknown-column")
            elif nested := row.describe_nested(names):
                problems.add(f"{self.table.place(row.line)}: {nested}.", code="unusable-row")
            else:
                yield row


@dataclass(frozen=True, kw_only=True)
class TextJob(TableJob):
    """A job that computes a result for each row of texts; a row has one text, unless `check` is another."""

    verb: ClassVar[str]
    with_blanks: ClassVar[bool] = False
    """Whether blank lines are rows of the output."""

    rows: TextRows

    @property
    def window_size(self) -> tuple[int, int]:
        return WINDOW, 1

    @property
    def description(self) -> str:
        return self.rows.describe()

    def read(self, problems: Problems) -> Iterator[Row]:
        return self.rows.rows(blanks=self.with_blanks)

    def check(self, watch: Watch) -> int:
        """Read the whole file and return its number of rows. Raises UserError, as for pairs of texts."""
        rows, columns = self.rows, self.rows.columns
        if columns.pair:
            raise UserError(
                f"{rows.name}: `osbert {self.verb}` reads one text per row, but two columns were found "
                f"({columns.text}, {columns.pair}). Choose one with --text.",
                code="wrong-number-of-texts",
            )
        rows.check()
        return super().check(watch)

    def text(self, row: Row) -> str:
        """Return the text of a row."""
        return row.values[self.rows.columns.text]
