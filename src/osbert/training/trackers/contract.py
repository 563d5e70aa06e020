"""The contract of a tracker, one in each file: it passes the lines of metrics.jsonl on to another program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """The run that a tracker shows: `folder`, display `name`, and settings by dotted names.

    `id`: the tracker's own id of the run; "" for a new run.
    """

    folder: Path
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


class Tracker:
    """A run in another program. `id` is that program's id, with which a resumed run continues the same entry.

    Methods may raise any exception of their library; TrackerQueue then passes the lines on again later.
    """

    library: ClassVar[str]
    """The module that it imports; `pip install "osbert[NAME]"` installs it."""

    def __init__(self, run: TrackedRun) -> None:
        """Open the run with the id, or create one. Import the library only here."""
        self.id = run.id

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the numbers of a line of metrics.jsonl by name. Steps never decrease."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush and close: the run has ended or is interrupted."""
        raise NotImplementedError
