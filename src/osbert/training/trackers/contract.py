"""The contract of a tracker, one in each file: it passes the lines of metrics.jsonl on to another program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker is made for: the run's `folder`, its `name` for people, and its settings by their dotted names.

    `id`: what the tracker called the run when the folder's run began; "" for a new one.
    """

    folder: Path
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


class Tracker:
    """A run as another program keeps it; `id` is what that calls it, so that a resumed run goes on in the same one.

    Any method may raise what its library raises: the lines are then given again (`TrackerQueue`).
    """

    library: ClassVar[str]
    """The module that it needs; `pip install "osbert[NAME]"` installs it."""

    def __init__(self, run: TrackedRun) -> None:
        """Open the run of that id, or a new one. Only here may the library be imported."""
        self.id = run.id

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Take the numbers of a line of metrics.jsonl, by their names; steps never go back."""
        raise NotImplementedError

    def close(self) -> None:
        """Hand over what is left: the run has ended, or stops for now."""
        raise NotImplementedError
