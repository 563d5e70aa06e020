"""Safe printing of labels, texts and file names: control characters are escaped where the output is a terminal.

A terminal obeys control characters: they move the cursor, change the title or reverse the order of letters, so that the
screen shows something else than the file holds. In a file or a pipe they are data and stay.

A line feed is part of most output, so that the stream cannot escape it. `one_line` escapes it in a label or a text,
wherever the output goes: else a label such as "pos\\nerror: x" would print a line of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
"""C0 without tab and line feed, DEL and C1; Unicode's separators of lines and paragraphs, its marks, embeddings,
overrides and isolates of direction, and its tags, which are invisible."""
_BREAKS = re.compile("[\t-\r\x1c-\x1e\x85\u2028\u2029]")
"""Tab, and every character at which `str.splitlines` begins a new line."""


def printable(text: str) -> str:
    r"""Return a text with control characters escaped.

    >>> printable("\x1b[2K\rfine\n")
    '\\x1b[2K\\rfine\n'
    """
    return _CONTROLS.sub(_escape, text)


def one_line(text: str) -> str:
    r"""Return a label or a text with line breaks and tabs escaped, so that it prints as part of one line.

    >>> one_line("pos\nerror: x")
    'pos\\nerror: x'
    """
    return _BREAKS.sub(_escape, text)


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, in the plural unless it is one; by default the plural ends in s.

    >>> format_count(1, "row"), format_count(2000, "row"), format_count(2, "process", "processes")
    ('1 row', '2,000 rows', '2 processes')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def in_megabytes(size: int) -> str:
    """Return a number of bytes in megabytes, a small one in kilobytes.

    >>> in_megabytes(1_234_567), in_megabytes(4096)
    ('1.2 MB', '4.1 kB')
    """
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"


def in_columns(rows: Iterable[Sequence[str]], *, indent: str = " ") -> Iterator[str]:
    """Yield rows of cells as lines, each column as wide on the screen as its widest cell.

    >>> list(in_columns([("score", "value"), ("f1", "0.5")]))
    [' score  value', ' f1     0.5']
    """
    from rich.cells import cell_len  # a Chinese character is two columns wide

    lines = [[one_line(cell) for cell in cells] for cells in rows]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
        yield f"{indent}{'  '.join(padded)}".rstrip()


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


class Screen:
    """A stream to a terminal that escapes control characters. rich bypasses it, since it writes its own."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # the name under which rich looks for it

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def guard_streams() -> None:
    """Make standard output and standard error accept any text: escaped on a terminal, in any encoding.

    Characters that the encoding lacks, and bytes of file names that are not UTF-8, are printed as escapes.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        if stream is not None and stream.isatty() and not isinstance(stream, Screen):
            setattr(sys, name, cast(TextIO, Screen(stream)))


def open_console(
    *, stderr: bool = False, highlight: bool = True, file: IO[str] | None = None, width: int | None = None
) -> Console:
    """Return a rich Console that escapes control characters on a terminal. The arguments are those of Console."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class GuardedConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                plain = segment.control or not self.is_terminal
                yield segment if plain else segment._replace(text=printable(segment.text))

    return GuardedConsole(stderr=stderr, highlight=highlight, file=file, width=width)
