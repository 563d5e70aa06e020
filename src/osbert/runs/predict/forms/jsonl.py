"""JSON lines: the object as it was, with the fields of the prediction ("prediction" and more)."""

from __future__ import annotations

from osbert.runs.predict.forms.contract import PredictedRow, RowForm, as_json, free_names


class JsonLines(RowForm):
    """An object a line."""

    endings = ("ndjson", "json")

    def row(self, said: PredictedRow) -> str:
        """Return one row as an object."""
        fields = self.layout.options.fields(said.prediction, said.withheld)
        own = said.row.source or said.row.values
        names = free_names(list(fields), {*self.layout.inputs.columns, *own})
        return as_json({**own, **dict(zip(names, fields.values()))}) + "\n"
