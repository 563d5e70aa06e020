"""JSON as the input's: an array, or lines; an annotation tool's object holds the prediction in its place for it."""

from __future__ import annotations

from osbert.reading.file_forms.array import Array
from osbert.reading.record_forms.contract import Suggestion
from osbert.reading.rows import Table
from osbert.reading.table import AnnotatedTable, WholeTable
from osbert.runs.predict.forms.contract import PredictedRow, RowForm, RowLayout, as_json, free_names
from osbert.tasks import Inputs


def holds_array(table: Table | None) -> bool:
    """Return whether a table's file is a JSON array; a workbook, which is read whole as well, is none."""
    held = table.inner if isinstance(table, AnnotatedTable) else table
    return held is not None and held.format.title == Array.title


class JsonRecords(RowForm):
    """The records of the input with what is predicted."""

    endings = ("jsonl", "ndjson", "json")
    drops_nonfinite = True

    def __init__(self, layout: RowLayout) -> None:
        """Take the form of the records, and of what holds them, from the input."""
        super().__init__(layout)
        table = layout.inputs.table
        self.form = table.form if isinstance(table, AnnotatedTable) else None
        options = layout.options
        self.complete = bool(self.form and self.form.complete) and not (options.top_k or options.probabilities)
        self.is_array = holds_array(table)
        self.newline = table.format.newline if table else "\n"

    @classmethod
    def suits(cls, inputs: Inputs, *, alike: bool) -> bool:
        """Return whether the input is an array or an annotation tool's, and the output has its ending."""
        return alike and isinstance(inputs.table, AnnotatedTable | WholeTable)

    def begin(self) -> str:
        """Return the beginning of an array."""
        return "[" if self.is_array else ""

    def row(self, predicted_row: PredictedRow) -> str:
        """Return one record."""
        record = predicted_row.row.record or predicted_row.row.source or predicted_row.row.values
        suggestion = Suggestion.of(predicted_row.prediction.as_dict()) if predicted_row.prediction else Suggestion()
        filled = self.form.add_suggestion(record, suggestion) if self.form else None
        fields = self.layout.options.fields(predicted_row.prediction, predicted_row.withheld)
        if self.complete and (filled is not None or predicted_row.prediction is None or predicted_row.withheld):
            fields = {"abstained": predicted_row.withheld} if "abstained" in fields else {}
        names = free_names(list(fields), {*self.layout.inputs.columns, *record})  # a row need not have all of a record
        text = as_json({**(filled or record), **dict(zip(names, fields.values()))})
        return f"{',' if predicted_row.number else ''}\n{text}" if self.is_array else f"{text}{self.newline}"

    def end(self, rows: int) -> str:
        """Return the end of an array."""
        return ("\n]\n" if rows else "]\n") if self.is_array else ""
