"""Rows in memory as tables: dicts, (text, label) pairs, texts, DataFrames (pandas, polars), datasets.Dataset; columns.

None of these libraries is imported; the types are recognised by their methods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

from osbert.errors import Problems, UserError
from osbert.files import user_path
from osbert.reading.data_file import DataFile
from osbert.reading.form import Format
from osbert.reading.splits import USUAL
from osbert.reading.table import Origin, Row, Table, as_annotated, row_of

Data: TypeAlias = Any
"""Data from a user: a path, rows in one of the forms above, or a mapping from splits to any of these."""
GIVE = (
    "Give a path, a list of dicts, of texts, or of (text, label) or (text, text, label) tuples, a pandas or polars "
    "DataFrame, a datasets.Dataset, a dict of columns, or a dict with these as 'train', 'dev' and 'test'"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryTable(Table):
    """Rows in memory; messages say "row 3", counted from 1, or "dev, row 3" if there are several splits.

    `split`: the user's name of the rows, "" for rows without splits. `index`: that of a DataFrame, with an integer for
    each row; then messages say "index 3". Without it rows are counted.
    """

    objects: Sequence[Mapping[str, Any]]
    split: str = ""
    index: Sequence[int] = ()
    file: DataFile = field(default_factory=lambda: DataFile(Path()))

    @property
    def origin(self) -> str:
        return self.split

    @property
    def called(self) -> str:
        return f"the {self.split} data" if self.split else "the data"

    def rows(self, problems: Problems) -> Iterable[Row]:  # type: ignore[override]
        """Yield the rows with their numbers; the checks of files in `problems` do not apply to them."""
        numbers = self.index or range(1, 1 + len(self.objects))
        return (row_of(value, number) for number, value in zip(numbers, self.objects, strict=True))


def tables(data: Data) -> dict[str, Origin]:
    """Return the table of each split by its key; {"all": table} for rows without splits. Paths in a mapping stay paths.

    Raises UserError if the data has an unknown form or no rows.
    """
    if isinstance(data, Mapping) and not _has_columns(data):
        return {str(key): _origin(part, str(key)) for key, part in data.items()}
    return {"all": _origin(data, "")}


def _origin(data: Data, split: str) -> Origin:
    if isinstance(data, str | Path):
        return user_path(data)
    objects = _objects(data, split)
    columns = tuple({name: None for value in objects for name in value})
    index = _index(data)
    form = Format(kind="rows", encoding="", columns=columns, unit="index" if index else "row")
    table = MemoryTable(objects=objects, split=split, index=index, format=form)
    if not objects:
        raise UserError(f"{table.called[0].upper()}{table.called[1:]} is empty.", code="no-data")
    return as_annotated(table) or table


def _has_columns(data: Mapping[Any, Any]) -> bool:
    """Return whether a mapping has columns of one length, as lists or arrays, in place of splits."""
    columns = [value for value in data.values() if isinstance(value, list | tuple) or hasattr(value, "tolist")]
    names = {name for words in USUAL.values() for name in words}
    is_split = any(re.split(r"[^a-z]", str(key).lower())[0] in names for key in data)
    has_rows = any(isinstance(value, Mapping | tuple) for column in columns for value in column)
    return len(columns) == len(data) and len({*map(len, columns)}) == 1 and not is_split and not has_rows


def _index(data: Data) -> list[int]:
    """Return the index of a pandas DataFrame if it has another integer for each row; [] for other data."""
    index = getattr(data, "index", None)
    if not (hasattr(data, "columns") and getattr(index, "is_unique", False)):
        return []
    numbers: list[Any] = index.tolist()  # type: ignore[union-attr] # what is unique is an index
    return numbers if all(type(number) is int for number in numbers) else []


def _objects(data: Data, split: str) -> list[dict[str, Any]]:
    """Return the rows of any supported form as dicts of plain values."""
    if (getattr(data, "format", None) or {}).get("type") in ("arrow", "pandas", "polars"):  # datasets
        data = data.with_format(None, columns=data.format["columns"])  # else each row is a table
    if isinstance(data, Mapping) and _has_columns(data):
        rows: Any = (dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True))
    elif hasattr(data, "iter_rows"):  # polars
        rows = data.iter_rows(named=True)
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        _refuse_repeated([str(name) for name in data.columns], split)
        rows = data.to_dict("records")
    elif hasattr(data, "to_pylist"):  # pyarrow
        _refuse_repeated(data.column_names, split)
        rows = data.to_pylist()
    elif hasattr(data, "column_names"):  # datasets
        rows = _with_names(data)
    else:
        rows = data.tolist() if getattr(data, "ndim", 1) == 2 else data  # an array (n, 2) of texts and labels
    if isinstance(rows, bytes) or not isinstance(rows, Iterable):
        raise UserError(f"The data cannot be read from {type(data).__name__}. {GIVE}.", code="wrong-format")
    problems = Problems(heading="The data cannot be used")
    row_dicts = []
    for number, value in enumerate(rows, 1):
        row = plain_row(value)
        if row is None:
            location = f"{split}, row {number}" if split else f"row {number}"
            problems.add(f"{location}: {repr(value)[:40]} is not a row. {GIVE}.", code="unusable-row")
        else:
            row_dicts.append(row)
    problems.stop_if_any()
    return row_dicts


def _refuse_repeated(columns: Sequence[str], split: str) -> None:
    """Raise UserError if two columns have the same name: a dict would keep only the last."""
    if repeated := [name for index, name in enumerate(columns) if name in columns[:index]]:
        raise UserError(
            f"The {split}{' ' if split else ''}data has several columns called '{repeated[0]}': {', '.join(columns)}. "
            "Rename or drop all but one.",
            code="duplicate-name",
        )


def plain_row(value: Any) -> dict[str, Any] | None:
    """Return a row as a dict, None if it is not a row. Parts of a tuple without names get usual column names."""
    if hasattr(value, "_asdict"):  # a named tuple, such as those of DataFrame.itertuples
        value = value._asdict()
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    elif hasattr(value, "keys") and not isinstance(value, Mapping):  # sqlite3.Row
        value = dict(zip(value.keys(), value, strict=True))
    if isinstance(value, Mapping):
        return {str(name): _plain(cell) for name, cell in value.items()}
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, list | tuple) or not 2 <= len(value) <= 3:
        return None
    first, *others = map(_plain, value)
    if isinstance(first, list):
        names: tuple[str, ...] = ("tokens", "tags")
    elif isinstance(others[0], list) and len(value) == 3:
        names = ("context", "choices", "label")
    else:
        names = ("text", "label") if len(value) == 2 else ("text_a", "text_b", "label")
    # Tagged words need two parts.
    return dict(zip(names, (first, *others), strict=True)) if len(names) == len(value) else None


def _plain(value: Any) -> Any:
    """Return a value as in JSON: arrays as lists, numpy's numbers as Python's, an Enum's as values, NA as None."""
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(cell) for name, cell in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(cell) for cell in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value), key=str)
    if hasattr(value, "tolist"):  # a numpy array or number
        return _plain(value.tolist())
    return None if str(value) in ("<NA>", "NaT") else value  # what pandas writes for what is absent


def _with_names(data: Any) -> Iterable[dict[str, Any]]:
    """Yield the rows of a datasets.Dataset with class names for numbers; -1 (no label) becomes None."""
    features = getattr(data, "features", None) or {}
    classes = {name: names for name in features if (names := _classes(features[name]))}
    for row in data:  # whose cells are tensors or arrays where with_format says so
        yield {
            name: _name_classes(_plain(cell), classes[name]) if name in classes else cell for name, cell in row.items()
        }


def _classes(feature: Any) -> Sequence[str]:
    """Return the class names of a column, or of the lists in it; () for other columns."""
    while feature is not None and not hasattr(feature, "names"):
        feature = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    return getattr(feature, "names", ())


def _name_classes(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list | tuple):
        return [_name_classes(label, names) for label in value]
    if not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None
