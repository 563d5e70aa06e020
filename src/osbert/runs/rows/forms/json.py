"""One JSON object, {key: prediction}, as the scorers of some data sets (SQuAD's) read it."""

from __future__ import annotations

from osbert.runs.rows.forms.contract import PredictedRow, RowForm, as_json
from osbert.tasks import Inputs


class JsonObject(RowForm):
    """An entry a row."""

    keyed = True
    has_columns = False

    @classmethod
    def suits(cls, inputs: Inputs, *, alike: bool) -> bool:
        """Return whether rows have ids."""
        return bool(inputs.key)

    def row(self, predicted_row: PredictedRow) -> str:
        """Return one entry."""
        value = "" if predicted_row.prediction is None else predicted_row.prediction.value
        before = ",\n" if predicted_row.number else "{"
        return f"{before}{as_json(self.layout.inputs.name_row(predicted_row.row))}: {as_json(value)}"

    def end(self, rows: int) -> str:
        """Return the end of the object."""
        return "}\n" if rows else "{}\n"
