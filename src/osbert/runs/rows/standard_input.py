"""Copies standard input to a file, so that it can be checked as a whole and read again."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from osbert.errors import UserError, nearest

STREAM = Path("-")
"""The name of standard input and standard output on the command line."""
NAME = "standard input"
KEPT = "standard-input"
FORMS = ("csv", "tsv", "jsonl", "json", "txt", "parquet")
"""The formats of standard input, by their usual file suffix."""


def resolve_input(file: Path, folder: Path, *, form: str = "") -> Path:
    """Return the path to read: the user's file, or for - a copy of standard input in `folder`.

    `form`: one of FORMS, detected if not given. Raises UserError at another one.
    """
    if form and file != STREAM:
        raise UserError(
            "--form applies to standard input (-) only; the format of a file is detected.",
            code="options-exclude-each-other",
        )
    if form and form not in FORMS:
        raise UserError(
            f"--form must be one of {', '.join(FORMS)}, not '{form}'.{nearest(form, FORMS)}", code="invalid-value"
        )
    if file != STREAM:
        return file
    path = folder / KEPT
    with path.open("wb") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy, 2**20)
    return path.replace(path.with_suffix(f".{form or form_of(path)}"))


def form_of(path: Path) -> str:
    """Return which of FORMS a file without a suffix has.

    Text in which several columns are found, or one with a usual name, is a table; JSON objects are JSON lines or one
    object; all else is a text a line. Raises UserError when it is empty, or is no text.
    """
    from osbert.reading.columns import is_known  # late: the command line needs the name of standard input alone
    from osbert.reading.data_file import DataFile
    from osbert.reading.form import TableReading, find_format

    with path.open("rb") as file:
        # Without a byte-order mark and leading blanks.
        start = file.read(2**12).removeprefix(b"\xef\xbb\xbf").lstrip()
    # Parquet's magic number.
    if start.startswith(b"PAR1"):
        return "parquet"
    if start[:1] in (b"{", b"["):
        return "json"
    form = find_format(DataFile(path), TableReading())
    if form.kind != "delimited" or (len(form.columns) == 1 and not (form.header and is_known(form.columns[0]))):
        return "txt"
    return "tsv" if form.delimiter == "\t" else "csv"


@contextmanager
def rename_in_errors(folder: Path) -> Iterator[None]:
    """Rename in the errors of the block: standard input's name instead of that of the copy in `folder`."""
    try:
        yield
    except UserError as error:
        if (message := as_given(str(error), folder)) == str(error):
            raise
        raise UserError(message, code=error.code, codes=error.codes) from error


def as_given(text: str, folder: Path) -> str:
    """Return a text with the path of the copy in `folder` replaced by the name of standard input."""
    return re.sub(re.escape(str(folder / KEPT)) + r"(\.[a-z]+)?", NAME, text)
