"""fastText's files for classifiers: a text a line, behind its labels, each of which begins with __label__."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import ClassVar

from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading, read_text
from osbert.reading.table import Entry, FileForm

PREFIX = "__label__"


class FastText(FileForm):
    """A file of lines such as "__label__pos a good film"."""

    title: ClassVar[str] = "fastText"
    unit: ClassVar[str] = "line"
    suffixes = (".txt", ".train", ".valid", ".test", ".ft", "")

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether a file begins with a label."""
        return file.first_text.startswith(PREFIX)

    def load(self, file: DataFile, reading: TableReading) -> list[Entry]:
        """Return the lines as texts with their labels; blank ones are skipped."""
        # As in fastText, lines end at line feeds alone.
        lines = io.StringIO(read_text(file, reading.encoding), newline="\n")
        return [(number, _row(line)) for number, line in enumerate(lines, 1) if line.strip()]


def _row(line: str) -> dict[str, str | list[str]]:
    labels = list(_labels(line))
    text = line.split(maxsplit=len(labels))[len(labels) :]
    return {"text": "".join(text).strip(), "label": labels}


def _labels(line: str) -> Iterator[str]:
    """Yield the labels before a text.

    >>> list(_labels("__label__pos __label__long a film about __label__s"))
    ['pos', 'long']
    """
    for word in line.split():
        if not word.startswith(PREFIX) or word == PREFIX:
            return
        yield word.removeprefix(PREFIX)
