"""Reads the text column of a Parquet file, row group by row group; pyarrow is needed and comes with an extra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from osbert.corpus.decoding import Errors
from osbert.corpus.inputs import Input, Repairs
from osbert.errors import Problems, UserError, nearest

BUFFER = 1 << 20
"""Bytes of a column read at a time; pyarrow would take the column's part of a row group whole."""


def read_texts(source: Input, field: str, *, errors: Errors, repairs: Repairs) -> Iterator[str]:
    """Yield the text of each row. Rows without a text stop the reading, or are left out and counted ("replace").

    Raises UserError when pyarrow is missing, the file is not Parquet, or it has no column `field` of texts.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(f'{source.path}: reading Parquet needs pyarrow: pip install "osbert[parquet]"') from error
    try:
        # Nothing is read ahead, and columns are read a piece at a time: a row group can be as large as the file.
        with pyarrow.parquet.ParquetFile(source.path, pre_buffer=False, buffer_size=BUFFER) as table:
            kinds = {column.name: column.type for column in table.schema_arrow}
            _check_column(str(source.path), field, {name: str(kind) for name, kind in kinds.items()})
            rows = (batch.column(0) for batch in table.iter_batches(batch_size=1024, columns=[field]))
            yield from _texts(rows, str(source.path), errors, repairs)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{source.path}: not a Parquet file that can be read ({error}).") from error


def _check_column(name: str, field: str, kinds: dict[str, str]) -> None:
    if field not in kinds:
        raise UserError(
            f"{name}: no column '{field}'; it has {', '.join(kinds)} (--field names another).{nearest(field, kinds)}"
        )
    if kinds[field] not in ("string", "large_string", "string_view"):
        raise UserError(f"{name}: column '{field}' holds {kinds[field]}, not texts (--field names another).")


def _texts(columns: Iterator[Any], name: str, errors: Errors, repairs: Repairs) -> Iterator[str]:
    problems = Problems(heading=f"{name} has rows that cannot be used (--errors replace leaves them out)")
    row = 0
    for column in columns:
        for text in column.to_pylist():
            row += 1
            if text is None and errors == "replace":
                repairs.records += 1
                repairs.note(f"{name}, row {row:,}: left out, no text")
            elif text is None:
                problems.add(f"row {row:,}: no text")
            elif not problems.count:
                yield text
        if problems.count >= problems.shown:
            break
    problems.stop_if_any()
