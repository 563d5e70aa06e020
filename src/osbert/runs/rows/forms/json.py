"""One JSON object, {key: prediction}, as the scorers of some data sets (SQuAD's) read it."""

from __future__ import annotations

from osbert.reading.table import Row
from osbert.runs.rows.forms.contract import RowForm, RowLayout, RowResult, as_json


class JsonObject(RowForm):
    """One entry per row: its id and the value predicted for it."""

    keyed = True
    has_columns = False

    @classmethod
    def suits(cls, layout: RowLayout, *, alike: bool) -> bool:
        return layout.name_row is not None

    def row(self, row: Row, result: RowResult, number: int) -> str:
        assert self.layout.name_row is not None  # `suits`
        value = "" if result.prediction is None else result.prediction.value
        before = ",\n" if number else "{"
        return f"{before}{as_json(self.layout.name_row(row))}: {as_json(value)}"

    def end(self, rows: int) -> str:
        return "}\n" if rows else "{}\n"
