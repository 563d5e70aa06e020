"""The contract of verbs on rows: what a verb is to the machine (machine.py), and what the machine appends to.

A verb is a RowSource, which names a model and a file, and the RowJob that it opens: the windows of the file's rows, and
what is written of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from osbert.runs.contract import Watch

if TYPE_CHECKING:
    from osbert.reading.data_file import DataFile

ROWS = "rows"
"""The name of the part that holds the text of rows."""
READ = "read"
"""The usual name of a job's cursor."""


@dataclass(frozen=True, kw_only=True)
class RowProgress:
    """Event: `done` of `count` rows are finished. The event of a verb is a subclass, whose name --json prints."""

    done: int
    count: int


class RowSink(Protocol):
    """What results are appended to, window by window: files that grow, or a stream.

    `sizes`: bytes by the name of a part. `tally`: counts of all that was appended.
    """

    sizes: dict[str, int]
    tally: dict[str, Any]

    def append(self, parts: Mapping[str, bytes], tally: Mapping[str, Any]) -> None:
        """Append to each part; `tally` counts everything up to its end. Raises OSError."""


class RowStream:
    """A stream, which gets each window at once."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        """Call `write` with the bytes of each window."""
        self._write = write
        self.sizes: dict[str, int] = {}
        self.tally: dict[str, Any] = {}

    def append(self, parts: Mapping[str, bytes], tally: Mapping[str, Any]) -> None:
        """Write the parts."""
        for part in parts.values():
            self._write(part)
        self.tally = dict(tally)


class RowJob(ABC):
    """A file and a model, opened together: what one process does, and each task does again for its range of rows.

    `before`: the file as it was opened, which every pass must find again. `facts`: those that must be equal to resume a
    call; they contain no folders, since data may move.
    """

    progress: ClassVar[type[RowProgress]]
    """The class of its progress events."""
    unit: ClassVar[str] = "row"
    """What messages count."""
    cursor: ClassVar[str] = READ
    """The name in a tally of the number of rows of the file that are done."""

    before: DataFile
    facts: Mapping[str, Any]

    @abstractmethod
    def check(self, watch: Watch) -> int:
        """Read the whole file and return its number of rows. Raises one UserError with every unusable row."""

    @abstractmethod
    def windows(self, start: int = 0, stop: int | None = None) -> Iterator[list[Any]]:
        """Yield the rows from number `start` to `stop` in windows. From a given row on these are always the same."""

    @abstractmethod
    def compute(self, window: Sequence[Any], sink: RowSink) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return what is appended to `sink` for a window of rows, and its counts."""

    def begin(self) -> bytes | None:
        """Return what stands before the first row; None where results are no text of rows."""
        return None

    def end(self, tally: Mapping[str, int]) -> bytes | None:
        """Return what stands behind the last row; None where results are no text of rows."""
        return None

    def grow(self, sink: RowSink, stop: int) -> Iterator[tuple[dict[str, bytes], dict[str, int]]]:
        """Yield what is appended to `sink` for each window of rows from its tally to `stop`, and the new tally.

        Raises UserError if a row can no longer be read, or the file has changed.
        """
        for window in self.windows(sink.tally.get(self.cursor, 0), stop):
            self.before.require_same()  # so that what is kept is always of one content
            parts, counts = self.compute(window, sink)
            if not sink.tally and (beginning := self.begin()):
                parts = {ROWS: beginning + parts[ROWS]}
            counts = counts | {self.cursor: len(window)}
            tally = {name: sink.tally.get(name, 0) + count for name, count in counts.items()}
            window.clear()  # before the next window is read
            yield parts, tally
        self.before.require_rows(sink.tally.get(self.cursor, 0), stop)
        self.before.require_same(whole=True)


class RowSource(Protocol):
    """What the user gave: a model, a file, how it is read and what is computed; it can be pickled."""

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths that are read."""

    @property
    def name(self) -> str:
        """What messages call the file."""

    def open(self) -> RowJob:
        """Open the model and the file. Raises UserError."""
