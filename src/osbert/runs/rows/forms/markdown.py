"""A Markdown table, as GitHub shows it: the cells of the rows and of the results, with markup escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from osbert.runs.rows.forms.contract import CellForm
from osbert.terminal import one_line

_MARKUP = re.compile(r"[\\|`*\[\]<>~&$]|(?<!\w)_|_(?!\w)")
"""What Markdown may take for markup; an underscore within a word is none."""


class MarkdownTable(CellForm):
    """A table with a line for each row."""

    endings = ("md",)

    def begin(self) -> str:
        return super().begin() + self.line(["---"] * len(self.names))

    def line(self, cells: Sequence[object]) -> str:
        line = f"| {' | '.join(map(escape_cell, cells))} |"
        return (one_line(line) if self.layout.on_terminal else line) + "\n"


def escape_cell(cell: object) -> str:
    r"""Return a cell as Markdown: markup with backslashes before it, line ends as <br>.

    >>> escape_cell("a|b"), escape_cell("*a*\nb_c"), escape_cell(0.5)
    ('a\\|b', '\\*a\\*<br>b_c', '0.5')
    """
    return "<br>".join(_MARKUP.sub(r"\\\g<0>", str(cell)).splitlines())
