"""What a model writes for every text of a file: some rows at a time, into a file that is whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from osbert.errors import UserError
from osbert.inference.engine import load
from osbert.inference.generate import TextWriter
from osbert.interop.opening import CAREFUL, Opening
from osbert.models.generation.settings import GivenOptions
from osbert.models.generation.written import Generation
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.embed.rows import TextRows
from osbert.runs.embed.settings import TextFile
from osbert.runs.file_options import EmbeddedOptions
from osbert.runs.predict.forms.contract import free_names
from osbert.runs.row_file import require_row_file, row_file
from osbert.runs.standard_input import named_as_given
from osbert.terminal import counted

WINDOW = 256
"""Rows that are read before any of them is written, so that texts of one length are written side by side."""
COLUMNS = ("generated", "pieces", "log_probability", "ended", "truncated")


@dataclass(frozen=True, kw_only=True)
class GenerationKeywords:
    """The keywords of `osbert.generate`: how texts are written, how the file is read, how the model is opened."""

    writing: GivenOptions = field(default_factory=GivenOptions)
    file: EmbeddedOptions = field(default_factory=EmbeddedOptions)
    opening: Opening = CAREFUL


@dataclass(frozen=True, kw_only=True)
class GenerationProgress:
    """An event: so many of the rows are written."""

    done: int
    count: int


@dataclass(frozen=True, kw_only=True)
class GenerationTally:
    """What was written: rows, those without text, those of which a part was not read, and pieces."""

    rows: int
    empty: int
    cut: int
    pieces: int

    def lines(self) -> Iterator[str]:
        """Yield the counts."""
        cut = f"; of {counted(self.cut, 'text')} a part is not read, see the column truncated" if self.cut else ""
        empty = f"; {self.empty:,} without text" if self.empty else ""
        yield f"{counted(self.rows, 'row')}, {counted(self.pieces, 'piece')} written{empty}{cut}"


def _cells(one: Generation | None) -> tuple[Any, ...]:
    if one is None:
        return ("",) * len(COLUMNS)
    return one.text, one.pieces, round(one.log_probability, 6), one.ended, one.truncated


def generate_file(
    model: Path, texts: TextFile, *, out: Path, options: GenerationKeywords, watch: Watch = ignore
) -> GenerationTally:
    """Write the rows of a file with what a model writes for each text into `out`: .csv, .tsv or .jsonl.

    With sampling, the seed and the text's number among the rows with text decide the samples; rows without text stay
    empty. Raises UserError where the model does not write, at options that cannot be, and at rows that cannot be used;
    the file gets its name when it is whole.
    """
    require_row_file(out, [texts.path])
    engine = load(model, device=options.file.device, opening=options.opening)
    report_remarks(engine, watch)
    writer = TextWriter.of(engine, options.writing)
    with TemporaryDirectory(prefix="osbert-") as folder, named_as_given(Path(folder)):
        rows = TextRows.open(texts, Path(folder))
        if rows.columns.pair:
            raise UserError(
                f"{rows.name}: one text a row is gone on with. A run that reads several: osbert predict --file.",
                code="wrong-number-of-texts",
            )
        watch(Notice(rows.describe()))
        rows.check()
        own = rows.table.columns
        done = cut = pieces = empty = 0
        with row_file(out, [*own, *free_names(COLUMNS, own)]) as write:
            left = rows.rows()
            while window := list(islice(left, WINDOW)):
                given = [row.values[rows.columns.text] for row in window]
                found = iter(writer.texts([(text,) for text in given if text.strip()], first=done - empty))
                for row, text in zip(window, given, strict=True):
                    one = next(found) if text.strip() else None
                    write([*(row.values.get(name, "") for name in own), *_cells(one)])
                    empty += one is None
                    cut += one is not None and one.truncated > 0
                    pieces += one.pieces if one else 0
                done += len(window)
                watch(GenerationProgress(done=done, count=rows.count))
        return GenerationTally(rows=done, empty=empty, cut=cut, pieces=pieces)
