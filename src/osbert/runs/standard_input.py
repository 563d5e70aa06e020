"""Standard input, kept as a file so that it can be checked whole before the work and read again."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from osbert.errors import UserError, nearest
from osbert.reading.columns import is_known
from osbert.reading.form import TableReading, find_format

STREAM = Path("-")
"""How a command line names standard input, and standard output."""
NAME = "standard input"
KEPT = "standard-input"
FORMS = ("csv", "tsv", "jsonl", "json", "txt", "parquet")
"""What standard input may hold, by the endings that files of that form have."""


def kept_input(file: Path, folder: Path, *, form: str = "") -> Path:
    """Return the path to read for a file of the user's: itself, or a copy of standard input in `folder`, for -.

    `form`: one of FORMS, detected if not given. Raises UserError at another one.
    """
    if form and file != STREAM:
        raise UserError(
            "--form is for standard input (-): the form of a file is found by looking.",
            code="options-exclude-each-other",
        )
    if form and form not in FORMS:
        raise UserError(
            f"--form must be one of {', '.join(FORMS)}, not '{form}'.{nearest(form, FORMS)}", code="invalid-value"
        )
    if file != STREAM:
        return file
    path = folder / KEPT
    with path.open("wb") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept, 2**20)
    return path.replace(path.with_suffix(f".{form or form_of(path)}"))


def form_of(path: Path) -> str:
    """Return which of FORMS a file without an ending has.

    Text in which several columns are found, or one with a usual name, is a table; JSON objects are JSON lines or one
    object; all else is a text a line. Raises UserError when it is empty, or is no text.
    """
    with path.open("rb") as file:
        start = file.read(2**12).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"PAR1"):
        return "parquet"
    if start[:1] in (b"{", b"["):
        return "json"
    form = find_format(path, TableReading())
    if form.kind != "delimited" or (len(form.columns) == 1 and not (form.header and is_known(form.columns[0]))):
        return "txt"
    return "tsv" if form.delimiter == "\t" else "csv"


@contextmanager
def named_as_given(folder: Path) -> Iterator[None]:
    """Have errors of the block call standard input by its name, not by that of the copy in `folder`."""
    try:
        yield
    except UserError as error:
        if (said := as_given(str(error), folder)) == str(error):
            raise
        raise UserError(said, code=error.code, codes=error.codes) from error


def as_given(text: str, folder: Path) -> str:
    """Return a text in which the copy of standard input in `folder` is called by its name."""
    return re.sub(re.escape(str(folder / KEPT)) + r"(\.[a-z]+)?", NAME, text)
