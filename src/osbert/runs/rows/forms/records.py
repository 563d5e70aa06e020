"""JSON as the input's: an array, or lines; an annotation tool's object holds a prediction in its place for it."""

from __future__ import annotations

from osbert.reading.form import JSON_ARRAY
from osbert.reading.record_forms.contract import Suggestion
from osbert.reading.table import AnnotatedTable, Row, Table, WholeTable
from osbert.runs.rows.forms.contract import RowForm, RowLayout, RowResult, as_json, free_names


def holds_array(table: Table | None) -> bool:
    """Return whether a table's file is a JSON array; a workbook, which is read whole as well, is none."""
    held = table.inner if isinstance(table, AnnotatedTable) else table
    return held is not None and held.format.title == JSON_ARRAY


class JsonRecords(RowForm):
    """The records of the input with the results."""

    endings = ("jsonl", "ndjson", "json")
    drops_nonfinite = True

    def __init__(self, layout: RowLayout) -> None:
        """Take the form of the records, and of what holds them, from the input."""
        super().__init__(layout)
        table = layout.table
        self.form = table.form if isinstance(table, AnnotatedTable) and layout.task else None
        self.complete = bool(self.form and self.form.complete) and layout.complete
        self.is_array = holds_array(table)
        self.newline = table.format.newline if table else "\n"

    @classmethod
    def suits(cls, layout: RowLayout, *, alike: bool) -> bool:
        """Return whether the input is an array or an annotation tool's, and the output has its ending."""
        return alike and isinstance(layout.table, AnnotatedTable | WholeTable)

    def begin(self) -> str:
        return "[" if self.is_array else ""

    def row(self, row: Row, result: RowResult, number: int) -> str:
        record = row.record or row.source or row.values
        prediction, withheld = result.prediction, result.withheld
        suggestion = Suggestion.of(prediction.as_dict()) if prediction else Suggestion()
        filled = self.form.add_suggestion(record, suggestion) if self.form else None
        fields = result.fields()
        if self.complete and (filled is not None or prediction is None or withheld):
            fields = {"abstained": withheld} if "abstained" in fields else {}
        names = free_names(list(fields), {*self.layout.columns, *record})  # a row need not have all of a record
        text = as_json({**(filled or record), **dict(zip(names, fields.values()))})
        return f"{',' if number else ''}\n{text}" if self.is_array else f"{text}{self.newline}"

    def end(self, rows: int) -> str:
        return ("\n]\n" if rows else "]\n") if self.is_array else ""
