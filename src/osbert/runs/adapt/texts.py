"""The texts of an adaptation, as files for building a corpus, and a sample of general text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osbert.corpus.docstrings import sample
from osbert.errors import Problems, UserError
from osbert.files import replacing
from osbert.reading.columns import TextColumns, choose
from osbert.reading.form import SUFFIXES, plain_suffix
from osbert.reading.inputs import files_below, kind_of
from osbert.reading.memory import Data, tables
from osbert.reading.snapshot import sampled_sha256
from osbert.reading.table import Table, TableReading, open_table
from osbert.runs.tokenizer import files_or_texts

TABLES = tuple(suffix for suffix in SUFFIXES if suffix != ".txt")
"""Suffixes of files with rows and a column of texts; other files are plain text."""
GENERAL_CHARACTERS = 200_000
"""Characters of docstrings in the default general text."""


@dataclass(frozen=True, kw_only=True)
class DomainTexts:
    """Files and tables of texts. `identity`: equal for two commands with the same texts."""

    files: tuple[Path, ...]
    tables: tuple[Table, ...]
    identity: list[Any]

    @classmethod
    def find(cls, texts: Data, reading: TableReading, *, without: Path | None = None) -> DomainTexts:
        """Tell files from rows in memory, and files of rows from files of text; a folder stands for its files.

        `without`: the folder that is written, which is not read. Raises UserError at a missing file.
        """
        several = isinstance(texts, Mapping)  # columns or splits, of which one must be named: `files_or_texts` refuses
        if not several and (hasattr(texts, "columns") or hasattr(texts, "column_names")):  # a DataFrame, a Dataset
            return cls._in_memory(texts)
        texts = texts if several or isinstance(texts, str | Path) else [*texts]
        if isinstance(texts, list) and texts and not isinstance(texts[0], str | Path):
            return cls._in_memory(texts)
        files, rows = files_or_texts(texts)
        if not files:
            return cls._in_memory([*rows])
        paths = [Path(file) for file in files]
        if missing := [str(path) for path in paths if not path.exists()]:
            raise UserError(f"{', '.join(missing)}: no such file.", code="missing-file")
        paths = [inner for path in paths for inner in _inside(path, without)]
        rowed = [path for path in paths if plain_suffix(path) in TABLES and path.is_file()]
        return cls(
            files=tuple(path for path in paths if path not in rowed),
            tables=tuple(open_table(path, reading) for path in rowed),
            identity=[[str(path.resolve()), sampled_sha256(path) if path.is_file() else ""] for path in paths],
        )

    @classmethod
    def _in_memory(cls, rows: Data) -> DomainTexts:
        (table,) = tables(rows).values()
        assert isinstance(table, Table)
        digest = hashlib.sha256()
        for row in table.rows(Problems(heading="")):
            digest.update(json.dumps(row.values, sort_keys=True).encode())
        return cls(files=(), tables=(table,), identity=[digest.hexdigest()])

    def write_tables(self, path: Path, column: str, *, encoding: str = "utf-8", again: bool = False) -> list[Path]:
        """Return the files of which a corpus can be built; the texts of all tables go into `path`, unless it is there.

        `column`: the one with the texts, "" if it is detected by its name; the rows of `path` have them under it, or
        under "text". `encoding`: that of `path`, and so of all. `again`: write it even if it is there. Raises UserError
        for every unusable row.
        """
        if self.tables and (again or not path.exists()):
            with replacing(path) as aside, aside.open("w", encoding=encoding) as stream:
                for table in self.tables:
                    write_rows(_column_texts(table, column), stream, column or "text")
        return [*self.files, *([path] if self.tables else [])]

    def describe(self, column: str) -> Iterator[str]:
        """Yield a description of each table."""
        for table in self.tables:
            yield f"{table.describe()}; {_columns(table, column).describe().removesuffix(', no label')}"


def general_rows(path: Path) -> Path | None:
    """Return a file with docstrings of Python's standard library, written if missing; None if there are none."""
    if not path.exists() and (passages := sample(GENERAL_CHARACTERS)):
        with replacing(path) as aside, aside.open("w", encoding="utf-8") as stream:
            write_rows(passages, stream)
    return path if path.exists() else None


def write_rows(texts: Iterable[str], stream: Any, field: str = "text") -> None:
    """Write texts as ASCII JSON lines, one document each; empty ones are left out."""
    for text in texts:
        if text.strip():
            stream.write(json.dumps({field: text}) + "\n")


def _inside(path: Path, without: Path | None) -> list[Path]:
    """Return the files in a folder that hold texts; the path itself if it is a file, or a folder without any."""
    problems = Problems(heading="These texts cannot be read")
    files = files_below(path, problems, without=without, known=_holds_texts) if path.is_dir() else []
    problems.stop_if_any()
    return files or [path]


def _holds_texts(name: str) -> bool:
    return kind_of(name) is not None or plain_suffix(Path(name)) in TABLES


def _columns(table: Table, column: str) -> TextColumns:
    columns = choose(table.columns, user_columns=TextColumns(text=column), path=table.called, labelled=False)
    return TextColumns(text=columns.text, pair=columns.pair)


def _column_texts(table: Table, column: str) -> Iterator[str]:
    names: Sequence[str] = _columns(table, column).texts
    problems = Problems(heading=f"{table.called} cannot be used")
    for row in table.rows(problems):
        for name in row.nested.intersection(names):
            message = f"{table.place(row.line)}: '{name}' holds a list or an object and no text. Give another --text."
            problems.add(message, code="unusable-row")
        yield from (row.values.get(name, "") for name in names)
    problems.stop_if_any()
