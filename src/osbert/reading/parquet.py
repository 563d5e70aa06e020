"""Reads Parquet files by row group; needs pyarrow, which comes with an extra."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from osbert.errors import Problems, UserError, nearest
from osbert.guarded import parse_json
from osbert.reading.compression import UnpackingLimit
from osbert.reading.data_file import DataFile
from osbert.reading.encodings import Errors
from osbert.reading.inputs import Input, Repairs

BUFFER = 1 << 20
"""Number of bytes of a column read at a time."""


def read_texts(source: Input, field: str, *, errors: Errors, repairs: Repairs) -> Iterator[str]:
    """Yield the text of each row. Rows without a text stop the reading, or are skipped and counted ("replace").

    Raises UserError if pyarrow is missing, the file is not Parquet, or it has no text column `field`.
    """
    # Columns are read a piece at a time: a row group can be as large as the file.
    with _open_table(DataFile(source.path)) as table:
        kinds = {column.name: str(column.type) for column in table.schema_arrow}
        if field not in kinds:
            raise UserError(
                f"{source.path}: no column '{field}'; it has {', '.join(kinds)} (--field names another)."
                f"{nearest(field, kinds)}",
                code="unknown-column",
            )
        if kinds[field] not in ("string", "large_string", "string_view"):
            raise UserError(
                f"{source.path}: column '{field}' has the type {kinds[field]}, not text (--field names another).",
                code="wrong-column-type",
            )
        rows = (batch.column(0) for batch in table.iter_batches(batch_size=1024, columns=[field]))
        yield from _texts(rows, str(source.path), errors, repairs)


def read_columns(file: DataFile) -> tuple[str, ...]:
    """Return the column names of a file; raises UserError like `read_texts`."""
    with _open_table(file.parts[0]) as table:
        return tuple(table.schema_arrow.names)


def read_rows(file: DataFile) -> Iterator[Mapping[str, Any] | ValueError]:
    """Yield each row as plain values by column; raises UserError like `read_texts`.

    Class numbers become names if the datasets library has stored them in the file. A row with a number that has no name
    is a ValueError.
    """
    for part in file.parts:
        with _open_table(part) as table:
            yield from read_batches(part.path, table.iter_batches(batch_size=1024), table.schema_arrow.metadata or {})


def read_batches(
    path: Path, batches: Iterable[Any], metadata: Mapping[bytes, bytes]
) -> Iterator[Mapping[str, Any] | ValueError]:
    """Yield each row of the Arrow batches of a file like `read_rows`. `metadata`: of their schema."""
    row = 0
    classes = _classes(metadata)
    for batch in batches:
        try:
            for values in batch.to_pylist():
                yield _name_row_classes(values, classes)
        except UnicodeDecodeError as error:
            names = batch.schema.names
            bad = [(row + index, name) for name, column in zip(names, batch.columns) for index in _bad(column)]
            number, name = min(bad)
            raise UserError(
                f"{path}, row {number + 1:,}: the value in the column '{name}' is not UTF-8 ({error.reason}).",
                code="wrong-encoding",
            ) from error
        row += len(batch)


def parquet_library(path: Path) -> Any:
    """Return pyarrow with its Parquet module. Raises UserError with the name of the extra if it is missing."""
    try:
        import pyarrow
        import pyarrow.parquet  # noqa: F401 - for its place in pyarrow
    except ImportError as error:
        raise UserError(
            f'{path}: Parquet needs pyarrow: pip install "osbert[parquet]"', code="missing-library"
        ) from error
    return pyarrow


@contextmanager
def _open_table(file: DataFile) -> Iterator[Any]:
    path = file.path
    pyarrow = parquet_library(path)
    try:
        source = path if file.content is None else pyarrow.BufferReader(file.content)
        # Nothing is read ahead: pyarrow would take the columns' parts of a row group whole.
        with pyarrow.parquet.ParquetFile(source, pre_buffer=False, buffer_size=BUFFER) as table:
            _require_bounded(path, table.metadata)
            yield table
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a Parquet file that can be read ({error}).", code="wrong-format") from error


def _require_bounded(path: Path, metadata: Any) -> None:
    """Raise UserError if a file holds far more values than bytes: repeated values and nulls take next to none."""
    limit = UnpackingLimit(str(path), path.stat().st_size)
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        limit.add_values(group.num_rows)
        for column in range(group.num_columns):
            limit.add_values(group.column(column).num_values)  # of a column of lists those in the lists


def _classes(metadata: Mapping[bytes, bytes]) -> dict[str, Sequence[str]]:
    """Return the class names of each column of classes or of lists of classes, from the metadata."""
    try:
        features = parse_json(metadata.get(b"huggingface", b"{}").decode())["info"]["features"]
        return {str(name): names for name, feature in features.items() if (names := _names(feature))}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}  # the key may hold anything; what is no description of features says nothing


def _names(feature: Any) -> Sequence[str]:
    while isinstance(feature, list) or (isinstance(feature, dict) and "feature" in feature):
        feature = feature[0] if isinstance(feature, list) else feature["feature"]
    names = feature.get("names") if isinstance(feature, dict) else None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _name_row_classes(
    values: Mapping[str, Any], classes: Mapping[str, Sequence[str]]
) -> Mapping[str, Any] | ValueError:
    """Return a row with the names of its classes, or the error of the first number without a name."""
    named = dict(values)
    for name in classes.keys() & values.keys():
        try:
            named[name] = _name_classes(values[name], classes[name])
        except ValueError as error:
            return ValueError(f"the column '{name}' has the class {error}. Correct it; -1 is no label")
    return named


def _name_classes(value: Any, names: Sequence[str]) -> Any:
    """Return the name of a class, or those of a list; None for -1, no label.

    In a list negative numbers are unchanged, unless all are -1. Other values are unchanged, too. Raises ValueError for
    another number without a name.
    """
    if isinstance(value, list) and value and all(label == -1 for label in value):
        return None
    if isinstance(value, list):
        return [label if isinstance(label, int) and label < 0 else _name_classes(label, names) for label in value]
    if not isinstance(value, int):
        return value
    if value == -1:
        return None
    if not 0 <= value < len(names):
        raise ValueError(f"{value}, but its classes are 0 to {len(names) - 1} ({names[0]} to {names[-1]})")
    return names[value]


def _bad(column: Any) -> list[int]:
    """Return the indices of the values of a column that are not UTF-8."""
    indices = []
    for index, value in enumerate(column):
        try:
            value.as_py()
        except UnicodeDecodeError:
            indices.append(index)
    return indices


def _values(column: Any, row: int, name: str, errors: Errors, repairs: Repairs) -> list[str | None]:
    """Return the texts of a column that starts at index `row`. Invalid UTF-8 is replaced or raises UserError."""
    try:
        texts: list[str | None] = column.to_pylist()
    except UnicodeDecodeError as error:
        bad = _bad(column)
        if errors != "replace":
            raise UserError(
                f"{name}, row {row + bad[0] + 1:,}: the text is not UTF-8 ({error.reason}). --errors replace "
                "writes U+FFFD and counts them.",
                code="wrong-encoding",
            ) from error
        repairs.replaced += len(bad)
        repairs.note(f"{name}, row {row + bad[0] + 1:,}: undecodable bytes replaced")
        texts = [
            value.as_buffer().to_pybytes().decode("utf-8", "replace") if value.is_valid else None for value in column
        ]
    return texts


def _texts(columns: Iterator[Any], name: str, errors: Errors, repairs: Repairs) -> Iterator[str]:
    problems = Problems(heading=f"{name} has rows that cannot be used (--errors replace skips them)")
    row = 0
    for column in columns:
        for text in _values(column, row, name, errors, repairs):
            row += 1
            if text is None and errors == "replace":
                repairs.records += 1
                repairs.note(f"{name}, row {row:,}: skipped, no text")
            elif text is None:
                problems.add(f"row {row:,}: no text", code="empty-text")
            elif not problems.count:
                yield text
        if problems.count >= problems.limit:
            break
    problems.stop_if_any()
