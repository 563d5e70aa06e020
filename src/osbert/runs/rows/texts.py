"""A file of texts: its rows, or the lines of standard input, kept so that they can be read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from osbert.errors import Problems, UserError
from osbert.inference.embedder import Embedder
from osbert.inference.engine import Engine
from osbert.inference.vectors.files import ENDS
from osbert.reading.columns import TextColumns, choose, is_known
from osbert.reading.data_file import DataFile
from osbert.reading.table import Row, Table, TableReading, open_table, require_columns
from osbert.remote.addresses import local_copy, local_output
from osbert.remote.cache import reading_copies
from osbert.runs.file_options import TextFile
from osbert.runs.rows.forms.contract import RowLayout, free_names
from osbert.runs.rows.output import RowOutput
from osbert.runs.rows.standard_input import NAME, STREAM, resolve_input
from osbert.terminal import format_count

TAKEN = ("vectors", "vector", "lines", "line", "text", "pair", "starts", "ids", "settings")
"""The names that columns of a file of vectors have."""

Out = TypeVar("Out")


@contextmanager
def local_files(file: Path, out: Out) -> Iterator[tuple[Path, Out | Path]]:
    """Yield a file and an output as local paths, where the user gave addresses; the output is uploaded at the end.

    `out`: a path, or what stays as it is, such as a stream. Copies are held until the end of the block, and its errors
    name their addresses. Raises UserError as `local_copy` and `local_output`.
    """
    with ExitStack() as held:
        held.enter_context(reading_copies())
        local_out: Out | Path = out
        if isinstance(out, Path):
            local_out = held.enter_context(local_output(out, inputs=[file]))
        yield local_copy(file), local_out


@contextmanager
def local_texts(texts: TextFile, out: Out) -> Iterator[tuple[TextFile, Out | Path]]:
    """Yield texts and an output with local paths, as `local_files` does."""
    with local_files(texts.path, out) as (path, local_out):
        yield replace(texts, path=path), local_out


@dataclass(frozen=True, kw_only=True)
class TextFileSource:
    """What a verb on texts was given: the folder of a model, the file of texts, and a folder for standard input."""

    model: Path
    texts: TextFile
    folder: Path

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths of the model and of the file."""
        return self.model, self.texts.path

    @property
    def name(self) -> str:
        """What messages call the file."""
        return str(self.texts.path)


@dataclass(kw_only=True)
class TextRows:
    """The rows of a table and their columns of texts; `file`: as the user named it. `count` is known after `check`.

    `before`: the file's content when it was opened, which every pass must find again.
    """

    file: Path
    before: DataFile
    table: Table
    columns: TextColumns
    count: int = 0

    @classmethod
    def open(cls, texts: TextFile, folder: Path) -> TextRows:
        """Open a file; standard input goes into `folder` first. Raises UserError if it has no column of texts."""
        file, options = texts.path, texts.options
        path = resolve_input(file, folder, form=texts.form or ("txt" if file == STREAM else ""))
        reading = TableReading(
            delimiter=options.delimiter,
            header=options.header,
            quotes=options.quotes,
            encoding=options.encoding,
            names=tuple(filter(None, (options.text, options.pair))),
        )
        before = DataFile(path, name=NAME if file == STREAM else str(file))
        table = require_columns(open_table(before, reading))
        user_columns = TextColumns(text=options.text, pair=options.pair)
        columns = choose(table.columns, user_columns=user_columns, path=before.name, labelled=False)
        return cls(file=file, before=before, table=table, columns=TextColumns(text=columns.text, pair=columns.pair))

    @property
    def name(self) -> str:
        """Return what messages call the file."""
        return self.before.name

    @property
    def others(self) -> dict[str, str]:
        """Return the columns that hold no texts, by names that a file of vectors has no other use for."""
        other_names = [name for name in self.table.columns if name not in self.columns.texts]
        clashing = [name for name in other_names if name in TAKEN or name.endswith(ENDS)]
        free = dict(zip(clashing, free_names(clashing, {*TAKEN, *other_names})))
        return {free.get(name, name): name for name in other_names}

    def layout(self, headings: Sequence[str], output: RowOutput) -> RowLayout:
        """Return the layout of an output with these rows and results under `headings`."""
        return RowLayout(
            file=self.before.path,
            columns=self.table.columns,
            headings=headings,
            table=self.table,
            bare=output.file is None,
            on_terminal=output.is_terminal,
            spreadsheet_safe=output.spreadsheet_safe,
        )

    def describe(self) -> str:
        """Describe the file, and a first line of standard input that may be a header."""
        description = (
            f"{self.name}: {self.table.format.describe()}; {self.columns.describe().removesuffix(', no label')}"
        )
        first = next(self.rows(), None) if self.table.format.kind == "lines" and self.file == STREAM else None
        if first is None or not is_known(word := first.values[self.columns.text].strip()):
            return description
        return f"{description}; its first line, '{word}', is a text as well: if it is a header, give --form csv"

    def check(self) -> list[str]:
        """Read the whole file, and return in words what has no vector.

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
            if missing := [name for name in self.columns.texts if not row.blank and name not in row.values]:
                problems.add(f"{self.table.place(row.line)}: there is no '{missing[0]}' in it.", code="unknown-column")
            else:
                yield row
