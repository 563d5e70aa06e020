"""Where predicted rows grow: a part in OUT.unfinished that a later command goes on with, or a stream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TextIO

from osbert.inference.vectors.growing import GrowingFiles

ROWS = "rows"
"""The name of the part, and in a tally the number of rows written."""


class RowSink(Protocol):
    """Takes the text of rows, window by window. `tally`: counts of all that it has taken."""

    tally: Mapping[str, int]

    def append(self, text: str, tally: Mapping[str, int]) -> None:
        """Add text; `tally` counts everything up to its end. Raises OSError."""


class RowPart:
    """A part in a folder, with a cursor: how many rows are done, and the hash of their text."""

    def __init__(self, folder: Path) -> None:
        """Open the part, without what a kill has left of a window. Raises UserError if it is damaged."""
        self._growing = GrowingFiles(folder)
        self.tally: Mapping[str, int] = self._growing.tally
        self.path = self._growing.path(ROWS)

    def append(self, text: str, tally: Mapping[str, int]) -> None:
        """Add text, which is on the disk before the tally is."""
        # A lone half of a pair, which JSON can hold, is written as JSON spells it.
        self._growing.append({ROWS: text.encode("utf-8", "backslashreplace")}, tally)
        self.tally = self._growing.tally

    def check(self) -> None:
        """Read the part. Raises UserError if it is not what was written."""
        self._growing.check()


class RowStream:
    """A stream, which gets each window at once."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self._stream = stream
        self.tally: Mapping[str, int] = {}

    def append(self, text: str, tally: Mapping[str, int]) -> None:
        """Write text."""
        self._stream.write(text)
        self._stream.flush()
        self.tally = dict(tally)
