"""Parquet: the input's columns, of a Parquet file in their own types, then those of the result; needs pyarrow.

The part holds a row a line as JSON. The columns' types are known when it is whole; then it is read again, in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from osbert.reading.parquet import parquet_library
from osbert.reading.table import Row
from osbert.runs.rows.forms.contract import RowLayout, WholeForm, as_json, free_names, read_part

FEATURES = b"huggingface"
"""The key of what the datasets library says of columns, such as the names of classes that are numbers."""
BLOCK = 2**10
"""Rows that are Python's objects at a time."""
GROUP, BYTES = 2**14, 2**24
"""About the most rows and bytes of a row group."""


class ParquetTable(WholeForm):
    """A table in row groups."""

    def __init__(self, layout: RowLayout) -> None:
        """Prepare for one output. Raises UserError where pyarrow is not installed."""
        super().__init__(layout)
        self.library = parquet_library(layout.file)
        table = layout.table
        self.typed = table.path if table and table.format.kind == "parquet" else None
        self.drops_nonfinite = self.typed is None

    def row_values(self, row: Row) -> Mapping[str, Any]:
        """Return the values of a row, unless the file's columns keep their own types."""
        return {} if self.typed else super().row_values(row)

    def finish(self, part: Path, out: Path) -> None:
        kinds, result_kinds = self._kinds(part)
        features: dict[bytes, bytes] = {}
        if self.typed:
            with self._open_table(self.typed) as table:
                kinds = {field.name: field.type for field in table.schema_arrow}
                noted = table.schema_arrow.metadata or {}
                features = {key: noted[key] for key in noted if key == FEATURES}
        added = free_names(list(result_kinds), kinds)
        schema = self.library.schema([*kinds.items(), *zip(added, result_kinds.values())], metadata=features or None)
        waiting: list[Any] = []
        with self.library.parquet.ParquetWriter(out, schema) as writer:
            for block, typed in zip(_blocks(part), self._read_columns()):
                columns = typed or [
                    self._array([values.get(name) for values, _ in block], kinds[name]) for name in kinds
                ]
                columns = [
                    *columns,
                    *(self._array([row[name] for _, row in block], result_kinds[name]) for name in result_kinds),
                ]
                waiting.append(self.library.table(columns, schema=schema))
                if sum(map(len, waiting)) >= GROUP or sum(table.nbytes for table in waiting) >= BYTES:
                    writer.write_table(self.library.concat_tables(waiting))
                    waiting = []
            if waiting:
                writer.write_table(self.library.concat_tables(waiting))

    def _open_table(self, path: Path) -> Any:
        return self.library.parquet.ParquetFile(path, pre_buffer=False)

    def _read_columns(self) -> Iterator[list[Any]]:
        """Yield the columns of a Parquet file, a block of rows at a time; of other files nothing for each block."""
        if self.typed is None:
            while True:
                yield []
        with self._open_table(self.typed) as table:
            for batch in _regular(table.iter_batches(batch_size=BLOCK), self.library):
                yield batch.columns

    def _kinds(self, part: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the type of each column of the file, and of the result."""
        file_kinds: dict[str, Any] = {}
        result_kinds: dict[str, Any] = dict.fromkeys(self.layout.headings, self.library.null())
        for block in _blocks(part):
            for kinds, rows in ((file_kinds, [row for row, _ in block]), (result_kinds, [row for _, row in block])):
                for name in dict.fromkeys(name for row in rows for name in row):
                    kind = self._kind([row.get(name) for row in rows])
                    kinds[name] = self._unify_kinds(kinds.get(name, kind), kind)
        file_kinds = dict.fromkeys(self.layout.columns, self.library.null()) | file_kinds
        return self._storable(file_kinds), self._storable(result_kinds)

    def _storable(self, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """Return the types with text in place of those that Parquet has not."""
        empty = (self.library.null(), self.library.struct([]))
        return {name: self.library.string() if kind in empty else kind for name, kind in kinds.items()}

    def _kind(self, values: Sequence[Any]) -> Any:
        try:
            return self.library.array(values).type
        except (self.library.ArrowException, OverflowError):  # values of several types
            return self.library.string()

    def _unify_kinds(self, first: Any, other: Any) -> Any:
        """Return a type that holds values of both, which text does if no other."""
        schemas = [self.library.schema([("column", kind)]) for kind in (first, other)]
        try:
            return self.library.unify_schemas(schemas, promote_options="permissive").field(0).type
        except self.library.ArrowException:
            return self.library.string()

    def _array(self, values: Sequence[Any], kind: Any) -> Any:
        if kind == self.library.string():
            values = [value if value is None or isinstance(value, str) else as_json(value) for value in values]
        elif kind == self.library.float64():
            values = [None if value is None else float(value) for value in values]
        return self.library.array(values, kind)


def _blocks(part: Path) -> Iterator[list[tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    rows = read_part(part)
    while block := list(islice(rows, BLOCK)):
        yield block


def _regular(batches: Iterator[Any], library: Any) -> Iterator[Any]:
    """Yield batches of BLOCK rows each but the last, as pyarrow's may be shorter at the end of a row group."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        if count >= BLOCK:
            table = library.Table.from_batches(waiting)
            yield table.slice(0, BLOCK)
            waiting, count = table.slice(BLOCK).to_batches(), count - BLOCK
    if count:
        yield library.Table.from_batches(waiting)
