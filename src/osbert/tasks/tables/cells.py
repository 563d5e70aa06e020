"""Cells that hold several values: lists, as in JSON lines and Parquet, and labels that look joined."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
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


SEPARATORS = (",", ";", "|")
_DECIMAL = re.compile(r"\s*[+-]?\d+,\d+\s*")


def find_joined_labels(labels: Sequence[str]) -> list[str]:
    """Return the labels that look like several joined labels, in order.

    These are lists, and labels with a part that is a label itself. Labels whose parts all occur in other labels count
    too, if at least half of the labels with that separator are like that: a single one may be chance, such as
    "Portland, OR" among towns.

    >>> find_joined_labels(["neg", "neg,long", "pos", "pos,long"])
    ['neg,long', 'pos,long']
    >>> find_joined_labels(["Boston, MA", "New York, NY", "Albany, NY"])
    []
    >>> find_joined_labels(["1,0", "1,3", "2,0", "2,3"])
    []
    """
    if lists := [label for label in labels if parse_list(label) is not None]:
        return lists
    for separator in SEPARATORS:
        parts = {label: parts for label in labels if len(parts := _parts(label, separator)) > 1}
        single = {*labels} - {*parts}
        # In how many joined labels each part occurs.
        uses = Counter(part for label_parts in parts.values() for part in label_parts)
        # A part that is a label itself: "neg,long" beside "neg".
        certain = [label for label, label_parts in parts.items() if label_parts & single]
        likely = [
            label
            for label, label_parts in parts.items()
            if all(part in single or uses[part] > 1 for part in label_parts)
        ]
        if certain or (likely and 2 * len(likely) >= len(parts)):
            return [label for label in parts if label in {*certain, *likely}]
    return []


def _parts(label: str, separator: str) -> set[str]:
    """Return the distinct parts of a label; an empty set for a number with a decimal comma."""
    if separator == "," and _DECIMAL.fullmatch(label):
        return set()
    return {part.strip() for part in label.split(separator)} - {""}


def parse_list(label: str) -> list[Any] | None:
    """Parse a JSON or Python list in a cell, None for other texts; "[spam]" is a word in brackets."""
    items = _parse_literal(label) if label.startswith("[") and label.endswith("]") else None
    return items if isinstance(items, list) else None


def parse_object(label: str) -> dict[str, float] | None:
    """Parse a JSON or Python object of numbers in a cell, None for other texts. Raises ValueError for other objects.

    >>> parse_object('{"neg": 0.25, "pos": 0.75}'), parse_object("{'neg': 1}"), parse_object("{neg}")
    ({'neg': 0.25, 'pos': 0.75}, {'neg': 1}, None)
    """
    if not label.startswith(('{"', "{'")):
        return None
    values = _parse_literal(label)
    numbers = values.values() if isinstance(values, dict) else [None]
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        raise ValueError(
            f'the label {label[:40]} is no object of labels and numbers, such as {{"neg": 0.2, "pos": 0.8}}'
        )
    return {str(name): number for name, number in values.items()}


def _parse_literal(text: str) -> Any:
    """Parse JSON or a Python literal, None for neither."""
    # literal_eval: pandas writes lists as Python does, with single quotes.
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None
