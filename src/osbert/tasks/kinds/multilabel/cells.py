"""The labels of a row: from a list, from a cell with separators, or from columns of 0 and 1."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from json import JSONDecodeError
from typing import Any

from osbert.errors import UserError
from osbert.guarded import parse_json
from osbert.tasks.tables.joined_labels import SEPARATORS, find_joined_labels, parse_list

Labels = tuple[str, ...]
"""The labels of a row, sorted by name, each once; () for none."""

FLAGS: Mapping[str, bool] = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
"""The values of a label's own column, in lower case -> whether the row has the label."""
NONE = "none"
"""The setting for cells with one label each, whatever characters it has."""


def canonical(labels: Iterable[str]) -> Labels:
    """Return labels sorted by name, each once, so that equal sets are equal.

    >>> canonical(["war", "art", "war"])
    ('art', 'war')
    """
    return tuple(sorted({*labels}))


def cell_labels(cell: str, separator: str) -> Labels:
    """Return the labels in a cell: those of a JSON or Python list, else its parts between separators.

    `separator`: "" and "none" for a cell with one label. Raises ValueError for a list of other things than texts and
    numbers.

    >>> cell_labels("war; art;", ";"), cell_labels('["a;b"]', ";"), cell_labels(" a, b ", "none"), cell_labels("", ",")
    (('art', 'war'), ('a;b',), ('a, b',), ())
    """
    text = cell.strip()
    if (parts := parse_list(text)) is not None:
        return _names(parts)
    split = text.split(separator) if separator not in ("", NONE) else [text]
    return canonical(filter(None, (part.strip() for part in split)))


def parse_nested_labels(cell: str) -> Labels:
    """Return the labels of a JSON list. Raises ValueError if the cell is no list of labels."""
    try:
        value = parse_json(cell)
    except JSONDecodeError:
        value = None
    if not isinstance(value, list):
        raise ValueError(f'the labels are no list ({cell[:40]}). Write them as ["one", "other"], and [] for none')
    return _names(value)


def flag_labels(values: Mapping[str, str], columns: Sequence[str]) -> Labels:
    """Return the labels whose columns are 1. Raises ValueError for a cell that is neither 0 nor 1."""
    for name in columns:
        if values[name].strip().lower() not in FLAGS:
            raise ValueError(f"the column '{name}' holds {values[name][:40]!r}, which is neither 0 nor 1")
    return canonical(name for name in columns if FLAGS[values[name].strip().lower()])


def find_separator(cells: Collection[str], *, where: str, known: Sequence[str] = ()) -> str:
    """Detect the separator of the labels in some cells: ; or | or a comma, "" if no cell has one of these.

    Lists need none. Raises UserError if cells have more than one of them, and if the only one may as well be part of
    the labels, as in "Boston, MA", because no part of the cells is a label in other cells or among the `known` ones.
    `where` names the source of the cells in messages.

    >>> find_separator(["war;art", "war"], where="the column"), find_separator(["war", '["a", "b"]'], where="it")
    (';', '')
    """
    texts = [cell for cell in cells if parse_list(cell.strip()) is None]
    cell_by_separator = {separator: cell for separator in SEPARATORS for cell in texts if separator in cell}
    if len(cell_by_separator) > 1:
        examples = ", ".join(f"'{separator}' as in {cell[:40]!r}" for separator, cell in cell_by_separator.items())
        first = next(iter(cell_by_separator))
        raise UserError(
            f"{where} holds several signs that may separate labels: {examples}. Say which one does (--separator "
            f"'{first}'), or --separator none if each cell is one label.",
            code="ambiguous-separator",
        )
    for separator, cell in cell_by_separator.items():
        several = sum(separator in text for text in texts) > 1
        if not (separator != "," and several) and not {*find_joined_labels([*known, *texts])} & {*texts}:
            raise UserError(
                f"{where} holds '{separator}', as in {cell[:40]!r}, which may separate labels or "
                "belong to one. Say that it "
                f"separates them (--separator '{separator}'), or --separator none if each cell is one label.",
                code="ambiguous-separator",
            )
    return next(iter(cell_by_separator), "")


def join_labels(labels: Sequence[str], separator: str) -> str:
    """Write labels as a cell that `cell_labels` reads back: with a separator, or as a JSON list; "[]" for none.

    >>> join_labels(("art", "war"), ";"), join_labels(("a;b", "c"), ";")
    ('art;war', '["a;b", "c"]')
    >>> join_labels((), ";"), join_labels(("art", "war"), "none")
    ('[]', '["art", "war"]')
    """
    cell = separator.join(labels)
    plain = bool(labels) and parse_list(cell) is None and cell_labels(cell, separator) == canonical(labels)
    return cell if plain else json.dumps(list(labels), ensure_ascii=False)


def _names(values: Sequence[Any]) -> Labels:
    """Return the labels in a list. Raises ValueError for a repeated number: the list is then a vector of 0 and 1."""
    names = [_name(value) for value in values]
    for name, value in zip(names, values):
        if not isinstance(value, str) and names.count(name) > 1:
            raise ValueError(
                f"the list of labels holds {name} twice. Write the labels' names, or a column of 0 and 1 for each label"
            )
    return canonical(names)


def _name(value: Any) -> str:
    """Return a label in a list as text; numbers as JSON writes them."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"the list of labels holds {value!r:.40}, which is no label. Write texts or numbers")
