"""A Markdown table, as GitHub shows it: the cells of the rows and of the results, with markup escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable

from osbert.runs.rows.forms.contract import ResultRow, RowForm, free_names
from osbert.terminal import one_line

_MARKUP = re.compile(r"[\\|`*\[\]<>~&$]|(?<!\w)_|_(?!\w)")
"""What Markdown may take for markup; an underscore within a word is none."""


class MarkdownTable(RowForm):
    """A table with a line for each row."""

    endings = ("md",)
    fixed_columns = True

    def begin(self) -> str:
        """Return the header and the line below it."""
        columns = self.layout.columns
        names = [*columns, *free_names(self.layout.headings, columns)]
        return self._line(map(escape_cell, names)) + self._line("---" for _ in names)

    def row(self, row: ResultRow) -> str:
        """Return one row."""
        values = (row.row.values.get(name, "") for name in self.layout.columns)
        return self._line(map(escape_cell, [*values, *row.result.cells().values()]))

    def _line(self, cells: Iterable[str]) -> str:
        line = f"| {' | '.join(cells)} |"
        return (one_line(line) if self.layout.on_terminal else line) + "\n"


def escape_cell(cell: object) -> str:
    r"""Return a cell as Markdown: markup with backslashes before it, line ends as <br>.

    >>> escape_cell("a|b"), escape_cell("*a*\nb_c"), escape_cell(0.5)
    ('a\\|b', '\\*a\\*<br>b_c', '0.5')
    """
    return "<br>".join(_MARKUP.sub(r"\\\g<0>", str(cell)).splitlines())
