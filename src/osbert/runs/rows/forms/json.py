"""One JSON object, {key: prediction}, as the scorers of some data sets (SQuAD's) read it."""

from __future__ import annotations

from osbert.runs.rows.forms.contract import ResultRow, RowForm, RowLayout, as_json


class JsonObject(RowForm):
    """One entry per row: its id and the value predicted for it."""

    keyed = True
    has_columns = False

    @classmethod
    def suits(cls, layout: RowLayout, *, alike: bool) -> bool:
        return layout.name_row is not None

    def row(self, row: ResultRow) -> str:
        assert self.layout.name_row is not None  # `suits`
        value = "" if row.result.prediction is None else row.result.prediction.value
        before = ",\n" if row.number else "{"
        return f"{before}{as_json(self.layout.name_row(row.row))}: {as_json(value)}"

    def end(self, rows: int) -> str:
        return "}\n" if rows else "{}\n"
