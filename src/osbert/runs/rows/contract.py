"""The contract of verbs on rows: the RowSource and RowJob of a verb, and the RowSink that the machine appends to.

A RowSource names a model and a file. It opens a RowJob, which yields windows of the file's rows and computes the output
of each window. machine.py does the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from osbert.errors import Problems
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.runs.contract import Watch, describe_remarks
from osbert.runs.file_options import TextOptions

if TYPE_CHECKING:
    from osbert.inference.engine import Engine
    from osbert.inference.model import LoadedModel
    from osbert.reading.data_file import DataFile

ROWS = "rows"
"""The name of the part that holds the text of rows."""
READ = "read"
"""The usual name of a job's cursor."""
Appended = tuple[dict[str, bytes], dict[str, int]]
"""What is appended to the parts of an output for a window of rows, and counts."""


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
        self._write = write
        self.sizes: dict[str, int] = {}
        self.tally: dict[str, Any] = {}

    def append(self, parts: Mapping[str, bytes], tally: Mapping[str, Any]) -> None:
        """Write the parts."""
        for part in parts.values():
            self._write(part)
        self.tally = dict(tally)


@dataclass(frozen=True, kw_only=True)
class RowJob(ABC):
    """A file and a model, opened together: what one process does, and each task does again for its range of rows.

    `before`: the file as it was opened, which every pass must find again. `facts`: those that must be equal to resume a
    call; they contain no folders, since data may move.
    """

    work: ClassVar[str]
    """The `of` of its WorkProgress events."""
    unit: ClassVar[str] = "row"
    """What messages count."""
    cursor: ClassVar[str] = READ
    """The name in a tally of the number of rows of the file that are done."""

    engine: LoadedModel
    before: DataFile
    facts: Mapping[str, Any]

    @property
    @abstractmethod
    def description(self) -> str:
        """The file and its detected form."""

    def describe(self) -> Iterator[str]:
        """Yield remarks on the model, and the description of the file."""
        yield from describe_remarks(self.engine)
        yield self.description

    @abstractmethod
    def check(self, watch: Watch) -> int:
        """Read the whole file and return its number of rows. Raises one UserError with every unusable row."""

    @property
    @abstractmethod
    def window_size(self) -> tuple[int, int]:
        """The limits of a window: a window ends with the row by which one of the two sums of `sizes` reaches its."""

    @abstractmethod
    def read(self, problems: Problems) -> Iterator[Any]:
        """Yield the rows of the file; add those that cannot be read to `problems`."""

    def sizes(self, row: Any) -> tuple[int, int]:
        """Return what a row adds to the sizes of a window: a row, or texts, and characters if they are limited."""
        return 1, 0

    def windows(self, start: int = 0, stop: int | None = None) -> Iterator[list[Any]]:
        """Yield the rows from number `start` to `stop` in windows. From a given row on these are always the same.

        Raises UserError if a row can no longer be read.
        """
        problems = self.before.problems()
        window: list[Any] = []
        items = characters = 0
        for row in islice(self.read(problems), start, stop):
            window.append(row)
            sizes = self.sizes(row)
            items, characters = items + sizes[0], characters + sizes[1]
            if items >= self.window_size[0] or characters >= self.window_size[1]:
                problems.stop_if_any()
                yield window
                window, items, characters = [], 0, 0
        problems.stop_if_any()
        if window:
            yield window

    @abstractmethod
    def compute(self, window: Sequence[Any], sink: RowSink) -> Appended:
        """Return what is appended to `sink` for a window of rows, and its counts."""

    def count_before(self, start: int) -> dict[str, int]:
        """Return what the results of a task depend on of the rows before its first one, number `start`."""
        return {}

    def begin(self) -> bytes | None:
        """Return what stands before the first row; None where results are no text of rows."""
        return None

    def end(self, tally: Mapping[str, int]) -> bytes | None:
        """Return what stands behind the last row; None where results are no text of rows."""
        return None

    def grow(self, sink: RowSink, stop: int) -> Iterator[Appended]:
        """Yield what is appended to `sink` for each window of rows from its tally to `stop`, and the new tally.

        Raises UserError if a row can no longer be read, or the file has changed.
        """
        for window in self.windows(sink.tally.get(self.cursor, 0), stop):
            self.before.require_same()  # so that what is kept is always of one content
            parts, counts = self.compute(window, sink)
            if not sink.tally and (beginning := self.begin()):
                parts = {ROWS: beginning + parts[ROWS]}
            counts = counts | {self.cursor: len(window)}
            tally = sink.tally | {name: sink.tally.get(name, 0) + count for name, count in counts.items()}
            window.clear()  # before the next window is read
            yield parts, tally
        self.before.require_rows(sink.tally.get(self.cursor, 0), stop)
        self.before.require_same(whole=True)


Job = TypeVar("Job", bound=RowJob)


@dataclass(frozen=True, kw_only=True)
class RowSource(ABC, Generic[Job]):
    """The model, the file and the settings of a call. It can be pickled, so that other processes can open it again.

    `reading`: how the file is read, and if it is TaskOptions, on how many processes. `form`: the format of standard
    input, "" to detect it. `name`: what messages call the file; the machine sets it.
    """

    work_name: ClassVar[str]
    """The unfinished work in messages, such as "a prediction that was begun"."""

    model: Path
    file: Path
    reading: TextOptions
    opening: Opening = CAREFUL
    form: str = ""
    name: str = ""

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths that are read."""
        return self.model, self.file

    def with_paths(self, file: Path, out: Path | None) -> Self:
        """Return the source with the local path of its file. Raises UserError if `out` cannot be written."""
        return replace(self, file=file)

    def with_absolute_paths(self) -> Self:
        """Return the source for a task, which may run in another folder."""
        return replace(self, model=self.model.absolute(), file=self.file.absolute())

    @abstractmethod
    def open(self) -> Job:
        """Open the model and the file. Raises UserError."""

    def load_model(self, device: str = "auto", *, resumable: bool = True) -> tuple[Engine, str]:
        """Return the engine and the fingerprint of its weights, "" if the call cannot be resumed."""
        from osbert.inference.engine import load  # torch takes seconds to import

        folder = open_folder(self.model, self.opening)
        weights = folder.fingerprint if resumable else ""  # before `load`, which frees the memory of the weights
        return load(folder, device=device), weights
