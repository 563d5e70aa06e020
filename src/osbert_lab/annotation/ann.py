"""brat's standoff: the entities predicted in the one text of the input."""

from __future__ import annotations

from osbert.errors import UserError
from osbert.reading.record_forms.contract import Suggestion
from osbert.reading.table import Row, WholeTable
from osbert.runs.rows.forms.contract import RowForm, RowLayout, RowResult
from osbert_lab.annotation.brat import Brat, standoff


class Standoff(RowForm):
    """An .ann file, whose places are those of one text."""

    has_columns = False

    def __init__(self, layout: RowLayout) -> None:
        """Raise UserError where no entities are predicted, or there are several texts, each with its own places."""
        super().__init__(layout)
        if layout.task is None or layout.task.form != "tokens":
            raise UserError(
                f"An .ann file lists entities, but {(layout.task.name if layout.task else 'this command')} "
                "predicts none. Write .jsonl or .csv.",
                code="unknown-output-format",
            )
        table = layout.table
        if isinstance(table, WholeTable) and len(table.entries) > 1:
            raise UserError(
                f"An .ann file belongs to one text, but {table.path} has several. Give one of its .ann files as "
                "--file, or write .jsonl.",
                code="unknown-output-format",
            )

    @classmethod
    def suits(cls, layout: RowLayout, *, alike: bool) -> bool:
        """Return whether the rows are brat's."""
        return isinstance(layout.table, WholeTable) and layout.table.format.title == Brat.title

    def row(self, row: Row, result: RowResult, number: int) -> str:
        """Return the entities of the text, a line each, with notes of their probabilities."""
        suggestion = Suggestion.of(result.prediction.as_dict()) if result.prediction else Suggestion()
        return "".join(f"{line}\n" for line in standoff(suggestion, row.values.get("text", "")))
