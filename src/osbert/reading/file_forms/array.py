"""A JSON array: objects, texts, or lists of a text and its label, wherever JSON lines are read."""

from __future__ import annotations

from json import JSONDecodeError
from typing import ClassVar

from osbert.errors import UserError, not_json
from osbert.guarded import parse_json
from osbert.reading.data_file import DataFile
from osbert.reading.documents import begins_array
from osbert.reading.form import JSON_ARRAY, JSON_SUFFIXES, TableReading, plain_suffix, read_text
from osbert.reading.memory import plain_row
from osbert.reading.table import Entry, FileForm


class Array(FileForm):
    """[{...}, {...}]."""

    title: ClassVar[str] = JSON_ARRAY
    suffixes = (*JSON_SUFFIXES, "")

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether a file begins like an array; of objects, if it has no suffix."""
        if not begins_array(file.first_text):
            return False
        return plain_suffix(file.path) in JSON_SUFFIXES or file.first_text.lstrip()[1:].lstrip()[:1] == "{"

    def load(self, file: DataFile, reading: TableReading) -> list[Entry]:
        """Return the items of the array. Raises UserError if it is not JSON."""
        text = read_text(file, reading.encoding)
        try:
            items = parse_json(text, unique_keys=True)
        except JSONDecodeError as error:
            raise UserError(
                f"{file.path}, line {error.lineno}: not a JSON array ({not_json(error)} at character {error.colno}). "
                "Correct it, or write JSON lines, one object per line.",
                code="wrong-format",
            ) from error
        if not items:
            raise UserError(f"{file.path} is empty: its array has no items.", code="no-data")
        rows = ((number, item, plain_row(item)) for number, item in enumerate(items, 1))
        return [
            (number, ValueError(f"{str(item)[:40]!r} is not an object {{...}}") if row is None else row)
            for number, item, row in rows
        ]
