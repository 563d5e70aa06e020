"""A JSON array: objects, texts, or lists of a text and its label, wherever JSON lines are read."""

from __future__ import annotations

from json import JSONDecodeError
from pathlib import Path
from typing import ClassVar

from osbert.errors import UserError, not_json
from osbert.guarded import parse_json
from osbert.reading.file_forms.contract import Beginning, Entry, FileForm, whole_text
from osbert.reading.form import TableReading, plain_suffix
from osbert.reading.memory import plain_row

_JSON = (".json", ".jsonl", ".ndjson")


class Array(FileForm):
    """[{...}, {...}]."""

    title: ClassVar[str] = "JSON array"
    suffixes = (*_JSON, "")

    @classmethod
    def claims(cls, beginning: Beginning) -> bool:
        """Return whether a file begins like an array; of objects, if it has no suffix."""
        start = beginning.text.removeprefix("\ufeff").lstrip()
        first, _, rest = start.partition("\n")
        if not start.startswith("[") or (rest.strip() and first.rstrip().endswith("]")):  # lines, each of them a list
            return False
        return plain_suffix(beginning.path) in _JSON or start[1:].lstrip()[:1] == "{"

    def load(self, path: Path, reading: TableReading) -> list[Entry]:
        """Return the items of the array. Raises UserError where it is no JSON."""
        text = whole_text(path, reading.encoding)
        try:
            items = parse_json(text, unique_keys=True)
        except JSONDecodeError as error:
            raise UserError(
                f"{path}, line {error.lineno}: not a JSON array ({not_json(error)} at character {error.colno}). "
                "Mend it, or write JSON lines, one object a line.",
                code="wrong-format",
            ) from error
        if not items:
            raise UserError(f"{path} is empty: its array has no items.", code="no-data")
        rows = ((number, item, plain_row(item)) for number, item in enumerate(items, 1))
        return [
            (number, ValueError(f"{str(item)[:40]!r} is not an object {{...}}") if row is None else row)
            for number, item, row in rows
        ]
