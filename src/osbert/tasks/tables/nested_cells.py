"""Cells that hold lists, as in JSON lines and Parquet."""

from __future__ import annotations

from json import JSONDecodeError
from typing import Any

from osbert.guarded import parse_json
from osbert.reading.table import Row


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
