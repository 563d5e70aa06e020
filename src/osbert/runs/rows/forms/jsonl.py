"""JSON lines: the object as it was, with the fields of the result."""

from __future__ import annotations

from osbert.reading.table import Row
from osbert.runs.rows.forms.contract import RowForm, RowLayout, RowResult, as_json, free_names


class JsonLines(RowForm):
    """An object a line, with the line ends of the input if that is JSON lines too."""

    endings = ("ndjson", "json")
    drops_nonfinite = True

    def __init__(self, layout: RowLayout) -> None:
        super().__init__(layout)
        table = layout.table
        self.newline = table.format.newline if table and table.format.kind == "jsonl" else "\n"

    def row(self, row: Row, result: RowResult, number: int) -> str:
        fields = result.fields()
        values = row.source or row.values
        names = free_names(list(fields), {*self.layout.columns, *values})
        return as_json({**values, **dict(zip(names, fields.values()))}) + self.newline
