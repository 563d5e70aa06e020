"""Parses delimited lines into cells, a row at a time, with the number of the line on which each row begins."""

from __future__ import annotations

from collections.abc import Iterator

from osbert.errors import Problems

MOST_CHARACTERS = 1 << 24  # a quoted cell longer than this is a quote that nobody closed


def parse(
    lines: Iterator[str], *, delimiter: str, quotes: bool, name: str, problems: Problems, blanks: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row; lines count from 1. With `blanks` also blank lines, with no cells.

    With `quotes`, a cell that begins with a double quote extends to the closing one, also over line ends, and two
    quotes inside stand for one (RFC 4180). A quote elsewhere in a cell is a plain character. A row that violates this
    is skipped and added to `problems`. Memory is that of one row.
    """
    numbered = enumerate(lines, 1)
    for start, line in numbered:
        text = line.rstrip("\r\n")
        if not text.strip() and delimiter not in text:  # a line of tabs alone is a row of empty cells
            if blanks:
                yield start, []
            continue
        if not quotes or '"' not in text:
            yield start, text.split(delimiter)
            continue
        try:
            yield start, _cells(line, delimiter, numbered)
        except ValueError as error:
            problems.add(f"{name}, line {start}: {error}", code="unusable-row")


def _cells(text: str, delimiter: str, numbered: Iterator[tuple[int, str]]) -> list[str]:
    """Split one row with quotes; further lines are read while a quoted cell is open."""
    cells = []
    position = 0
    while True:
        if text.startswith('"', position):
            cell, text, position = _read_quoted(text, position + 1, numbered)
            cells.append(cell)
            if not text[position:].rstrip("\r\n"):
                return cells
            if not text.startswith(delimiter, position):
                raise ValueError(
                    f"text follows a closing quote ({text[position : position + 20]!r}). Double the quotes inside a "
                    "quoted cell, or give --quotes no if quotes are plain characters here"
                )
        else:
            end = text.find(delimiter, position)
            if end < 0:
                cells.append(text[position:].rstrip("\r\n"))
                return cells
            cells.append(text[position:end])
            position = end
        position += len(delimiter)


def _read_quoted(text: str, position: int, numbered: Iterator[tuple[int, str]]) -> tuple[str, str, int]:
    """Return (cell, the line in which it ends, the position after its closing quote)."""
    parts: list[str] = []
    size = 0
    while True:
        end = text.find('"', position)
        if end < 0:
            parts.append(text[position:])
            size += len(text) - position
            following = next(numbered, None) if size <= MOST_CHARACTERS else None
            if following is None:
                raise ValueError(
                    "a quoted cell is never closed. Close it, or give --quotes no if quotes are plain characters here"
                )
            text, position = following[1], 0
        elif text.startswith('""', end):
            parts.append(text[position : end + 1])
            position = end + 2
        else:
            parts.append(text[position:end])
            return "".join(parts), text, end + 1
