"""TSV: as CSV, with tabs."""

from __future__ import annotations

from osbert.runs.rows.forms.csv import CsvTable


class TsvTable(CsvTable):
    """Cells with tabs between them."""

    suffix = ".tsv"
