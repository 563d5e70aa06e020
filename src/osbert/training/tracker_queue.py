"""The lines of metrics.jsonl for the trackers of a run (--track): each line once, however often the run is stopped."""

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
"""What each tracker calls a run, and the last line it was given, in the run's folder."""
START = (-1, 0)
"""The place before all lines. A line's place: its step, and which line of that step it is."""


def require_trackers(names: Sequence[str], problems: Problems) -> None:
    """Note every name that is no tracker, and every tracker whose library is not installed."""
    for name in names:
        try:
            library = found(name).library
        except UserError as error:
            problems.add_from("--track", error)
            continue
        if importlib.util.find_spec(library) is None:
            problems.add(f'--track {name} needs {library}: pip install "osbert[{name}]"', code="missing-library")


def found(name: str) -> type[Tracker]:
    """Return the tracker of a name. Raises UserError when there is none."""
    return cast(type[Tracker], components.find("training.trackers", name, base=Tracker))


@dataclass(kw_only=True)
class _Turn:
    """A tracker with the place of the last line that it was given, and the lines that it must still be given."""

    tracker: Tracker
    given: tuple[int, int]
    waiting: list[tuple[tuple[int, int], Mapping[str, Any]]] = field(default_factory=list)
    failed: bool = False


class TrackerQueue:
    """Gives trackers the lines of metrics.jsonl, each line once, however often the run is stopped.

    trackers.json in the run's folder keeps what each calls the run, and the last line it was given. A run that goes on
    from a checkpoint writes some lines again, maybe at other steps (training.log_every): what does not lie behind that
    line is not given again. A tracker that joins later gets all lines. One that fails, as without a network, is given
    its lines with the next one, and the run goes on.
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
            run = TrackedRun(folder=folder, name=_shown(folder), settings=settings, id=known["id"])
            try:
                self.trackers[name] = _Turn(tracker=found(name)(run), given=tuple(known["given"]))
            except Exception as error:
                self.close()
                raise UserError(
                    f"--track {name}: the run cannot be opened there ({type(error).__name__}: {error}). Mend that, or "
                    "leave it out; the same command goes on.",
                    code="not-tracked",
                ) from error

    def begin(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Give the trackers what they lack of the lines that the file has as the run begins or goes on."""
        for line in lines:
            self._await(line)
        self._give()

    def add(self, line: Mapping[str, Any]) -> None:
        """Give a line that was written to the trackers that have not had it."""
        self._await(line)
        self._give()

    def close(self) -> None:
        """Let every tracker finish, with the lines that it could not be given before."""
        if any(own.waiting for own in self.trackers.values()):
            self._give()
        for name, own in self.trackers.items():
            self._tried(name, own, own.tracker.close)

    def _await(self, line: Mapping[str, Any]) -> None:
        """Let a line wait for the trackers whose last one it lies behind."""
        step, count = self.last
        self.last = (line["step"], count + 1 if line["step"] == step else 1)
        for own in self.trackers.values():
            if self.last > own.given:
                own.waiting.append((self.last, line))

    def _give(self) -> None:
        for name, own in self.trackers.items():
            while own.waiting and self._tried(name, own, partial(own.tracker.log, *_figures(own.waiting[0][1]))):
                own.given, _ = own.waiting.pop(0)
        if self.trackers:
            now = {name: {"id": own.tracker.id, "given": own.given} for name, own in self.trackers.items()}
            with contextlib.suppress(OSError):  # of a full disk, which the next line may find otherwise
                write_json(self.path, self.before | now)

    def _tried(self, name: str, own: _Turn, work: Callable[[], None]) -> bool:
        """Return whether a tracker did something; the first failure is a notice."""
        try:
            work()
        except Exception as error:
            if not own.failed:
                self.notices.append(
                    f"--track {name} failed ({type(error).__name__}: {error}). The run goes on; the figures are given "
                    "to it again, and are in metrics.jsonl."
                )
            own.failed = True
            return False
        return True


def _figures(line: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """Return the step of a line, and its numbers by name."""
    return line["step"], {name: value for name, value in line.items() if name != "step" and value is not None}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by their dotted names."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(folder: Path) -> str:
    """Return what a run is called: its path from the current folder, or its name where it lies elsewhere."""
    whole, here = folder.absolute(), Path.cwd()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else whole.name
