"""TSV: as CSV, with tabs."""

from __future__ import annotations

from osbert.runs.predict.forms.csv import CommaSeparated


class TabSeparated(CommaSeparated):
    """Cells with tabs between them."""

    suffix = ".tsv"
