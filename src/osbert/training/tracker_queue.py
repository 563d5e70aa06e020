"""Passes the lines of metrics.jsonl to the trackers of a run (--track), each line once, even if the run is resumed."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from osbert import components, recipe
from osbert.errors import Problems, UserError
from osbert.files import write_json
from osbert.guarded import read_json
from osbert.training.run_folder import RECIPE
from osbert.training.trackers.contract import TrackedRun, Tracker

TRACKERS = "trackers.json"
"""File in the run's folder with each tracker's id of the run, and the last line that it got."""
START = (-1, 0)
"""The position before all lines. A position is (step, number of the line within the step)."""


def require_trackers(names: Sequence[str], problems: Problems) -> None:
    """Report every unknown tracker and every tracker whose library is not installed to `problems`."""
    for name in names:
        try:
            library = find_tracker(name).library
        except UserError as error:
            problems.add_from("--track", error)
            continue
        if importlib.util.find_spec(library) is None:
            problems.add(f'--track {name} needs {library}: pip install "osbert[{name}]"', code="missing-library")


def find_tracker(name: str) -> type[Tracker]:
    """Return the class of a tracker by name. Raises UserError if there is none."""
    return cast(type[Tracker], components.find("training.trackers", name, base=Tracker))


@dataclass(kw_only=True)
class _Turn:
    """A tracker, the position of the last line that it got, and the lines that it has yet to get."""

    tracker: Tracker
    given: tuple[int, int]
    waiting: list[tuple[tuple[int, int], Mapping[str, Any]]] = field(default_factory=list)
    failed: bool = False


class TrackerQueue:
    """Gives trackers the lines of metrics.jsonl, each line once, even if the run is resumed.

    trackers.json in the run's folder has each tracker's id of the run, and the last line that it got. A run that is
    resumed from a checkpoint writes some lines again, possibly at other steps (training.log_every): only lines after
    the last one are passed on. A tracker that is added later gets all lines. If a tracker fails, for example without a
    network, it gets its lines again with the next one; the run continues.
    """

    def __init__(self, folder: Path, names: Sequence[str], notices: list[str]) -> None:
        """Open the run of each named tracker; `notices` gets a message if one fails later.

        Raises UserError if one cannot be opened.
        """
        self.path = folder / TRACKERS
        self.notices = notices
        self.last = START
        self.before: dict[str, Any] = read_json(self.path) if self.path.exists() else {}
        self.trackers: dict[str, _Turn] = {}
        settings = dict(_flat(recipe.read(folder / RECIPE))) if names and (folder / RECIPE).is_file() else {}
        for name in dict.fromkeys(names):
            known = self.before.get(name, {"id": "", "given": START})
            run = TrackedRun(folder=folder, name=_display_name(folder), settings=settings, id=known["id"])
            try:
                self.trackers[name] = _Turn(tracker=find_tracker(name)(run), given=tuple(known["given"]))
            except Exception as error:
                self.close()
                raise UserError(
                    f"--track {name}: the run cannot be opened there ({type(error).__name__}: {error}). Mend that, or "
                    "leave it out; the same command goes on.",
                    code="not-tracked",
                ) from error

    def begin(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Pass on lines that are in the file when the run begins or is resumed and that a tracker has not got."""
        for line in lines:
            self._await(line)
        self._give()

    def add(self, line: Mapping[str, Any]) -> None:
        """Pass on a new line to the trackers that have not got it."""
        self._await(line)
        self._give()

    def close(self) -> None:
        """Close every tracker, after a last attempt to pass on its waiting lines."""
        if any(turn.waiting for turn in self.trackers.values()):
            self._give()
        for name, turn in self.trackers.items():
            self._attempt(name, turn, turn.tracker.close)

    def _await(self, line: Mapping[str, Any]) -> None:
        """Queue a line for the trackers whose last line is before it."""
        step, count = self.last
        # Several lines of one step (training, held-out) are numbered from 1. Positions compare as tuples.
        self.last = (line["step"], count + 1 if line["step"] == step else 1)
        for turn in self.trackers.values():
            if self.last > turn.given:
                turn.waiting.append((self.last, line))

    def _give(self) -> None:
        for name, turn in self.trackers.items():
            # Stops at the first failure, so that lines keep their order.
            while turn.waiting and self._attempt(name, turn, partial(turn.tracker.log, *_figures(turn.waiting[0][1]))):
                turn.given, _ = turn.waiting.pop(0)
        if self.trackers:
            now = {name: {"id": turn.tracker.id, "given": turn.given} for name, turn in self.trackers.items()}
            with contextlib.suppress(OSError):  # of a full disk, which the next line may find otherwise
                write_json(self.path, self.before | now)

    def _attempt(self, name: str, turn: _Turn, work: Callable[[], None]) -> bool:
        """Call `work`; return whether it succeeded. The first failure of a tracker becomes a notice."""
        try:
            work()
        except Exception as error:
            if not turn.failed:
                self.notices.append(
                    f"--track {name} failed ({type(error).__name__}: {error}). The run goes on; the figures are given "
                    "to it again, and are in metrics.jsonl."
                )
            turn.failed = True
            return False
        return True


def _figures(line: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """Return the step of a line and its numbers by name, without missing ones."""
    return line["step"], {name: value for name, value in line.items() if name != "step" and value is not None}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) for the settings of nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _display_name(folder: Path) -> str:
    """Return a run's display name: its path relative to the current folder, or its name if it is elsewhere."""
    whole, here = folder.absolute(), Path.cwd()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else whole.name
