"""metrics.jsonl, the record of a run for programs and reports; its lines as text for people, and sent to trackers.

Each tracker (--track) gets each line once, even if the run is resumed (`TrackerQueue`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from osbert import components, recipe
from osbert.errors import Problems, UserError
from osbert.files import flush, write_json, write_text
from osbert.guarded import parse_json, read_json, require_regular
from osbert.training.run_folder import RECIPE

if TYPE_CHECKING:
    from osbert.training.progress import Mean, Progress

NAME = "metrics.jsonl"
HELD_OUT, BEFORE, GENERAL = "held_out", "held_out_before", "general"
"""Prefixes of figures on held-out text: of this run's corpus, of the previous run's corpus, and of general text."""
TRACKERS = "trackers.json"
"""File in the run's folder with each tracker's id of the run, and the last line that it got."""
START = (-1, 0)
"""The position before all lines. A position is (step, number of the line within the step)."""


class Metrics:
    """metrics.jsonl: one flat JSON object per line, with names such as "mlm.loss" and "held_out.mlm.loss".

    A training line has the means over the steps since the previous line, without skipped steps. The sums between two
    lines are in `memory`, which checkpoints save, so that a resumed run writes the same lines as an uninterrupted one.
    """

    def __init__(self, folder: Path, *, every: int, memory: dict[str, Any], queue: TrackerQueue | None = None) -> None:
        """Write to `folder`: a training line every `every` steps and at the end. `queue` gets each line, too."""
        self.path = folder / NAME
        self.every = every
        self.memory = memory
        self.queue = queue
        self.unwritten: list[str] = []
        """Lines that did not fit on a full disk; they are written with the next line."""

    def go_back(self, step: int) -> None:
        """Drop the lines after `step`, all lines if it is 0, and an incomplete last line."""
        # `0 < step >= line["step"]` is both 0 < step and line["step"] <= step.
        lines = [line for line in read_lines(self.path) if 0 < step >= line["step"]]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in lines))
        if self.queue:
            self.queue.add(*lines)

    def step(self, progress: Progress) -> dict[str, Any] | None:
        """Add a step's figures. Return the training line if one is due at this step, else None."""
        memory = self.memory.setdefault("metrics", {"sums": {}, "before": [0, 0.0, 0.0]})
        if not progress.skipped:
            for name, value in values(progress).items():
                total, count = memory["sums"].get(name, (0.0, 0))
                memory["sums"][name] = (total + value, count + 1)
        if progress.step % self.every and progress.step != progress.steps:
            return None
        means = {name: total / count for name, (total, count) in memory["sums"].items()}
        tokens, seconds, loader_seconds = memory["before"]  # at the line before
        passed = max(progress.seconds - seconds, 1e-9)
        line = {
            "step": progress.step,
            **means,
            "learning_rate": progress.learning_rate,
            "tokens": progress.tokens,
            "skipped_steps": progress.skipped_steps,
            "seconds": round(progress.seconds, 3),
            "tokens_per_second": round((progress.tokens - tokens) / passed, 1),
            "loader_share": round((progress.loader_seconds - loader_seconds) / passed, 4),
        }
        memory.update(sums={}, before=[progress.tokens, progress.seconds, progress.loader_seconds])
        self.write(line)
        return line

    def record_held_out(self, step: int, means: Mapping[str, Mean], *, of: str = HELD_OUT) -> dict[str, Any]:
        """Write and return the line of an evaluation on held-out batches."""
        line: dict[str, Any] = {"step": step, f"{of}.loss": sum(mean.weight * mean.loss for mean in means.values())}
        for name, mean in means.items():
            line[f"{of}.{name}.loss"] = mean.loss
            if mean.accuracy is not None:
                line[f"{of}.{name}.accuracy"] = mean.accuracy
            line |= {f"{of}.{name}.{figure}": value for figure, value in mean.ratios.items()}
        self.write(line)
        return line

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line, which must have a "step". If the disk is full it is kept and written later."""
        # JSON has no NaN or infinity.
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in line.items()
        }
        self.unwritten.append(json.dumps(finite) + "\n")
        self.settle()
        if self.queue:
            self.queue.add(finite)

    def settle(self) -> None:
        """Try to write the lines that did not fit on a full disk before."""
        if not self.unwritten:
            return
        size = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(self.unwritten)
                file.flush()
                flush(file.fileno())  # a checkpoint that follows must not outlive these lines in a power cut
            self.unwritten.clear()
        except OSError:
            if self.path.exists():
                # Remove what was written in part, so that the file never has half a line.
                os.truncate(self.path, size)

    def close(self) -> None:
        """Close the trackers. metrics.jsonl is complete after every line."""
        if self.queue:
            self.queue.close()


class SilentMetrics:
    """The Metrics of a process other than the first, which writes nothing."""

    def go_back(self, step: int) -> None:
        """Do nothing."""

    def step(self, progress: Progress) -> None:
        """Do nothing; return None."""

    def record_held_out(self, step: int, means: Mapping[str, Mean], *, of: str = HELD_OUT) -> dict[str, Any]:
        """Return a line with the step only; write nothing."""
        return {"step": step}

    def close(self) -> None:
        """Do nothing: there are no trackers."""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl, [] if it does not exist, up to the first damaged line."""
    lines: list[dict[str, Any]] = []
    if path.exists():
        require_regular(path)
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            try:
                value = parse_json(line)
            except ValueError:
                break
            if not line.endswith("\n") or not isinstance(value, dict):
                break
            lines.append(value)
    return lines


def values(progress: Progress) -> dict[str, float]:
    """Return a step's losses, accuracies, ratios and gradient norm by their names in metrics.jsonl."""
    figures = {"loss": progress.loss}
    for name, loss in progress.losses.items():
        figures[f"{name}.loss"] = loss
        if name in progress.accuracies:
            figures[f"{name}.accuracy"] = progress.accuracies[name]
    return figures | {**progress.ratios} | {"gradient_norm": progress.gradient_norm}


def ratios(line: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return the ratios of an objective in a line of metrics by name, such as "recall".

    >>> ratios({"held_out.replaced.loss": 0.24, "held_out.replaced.recall": 0.41}, "held_out.replaced")
    {'recall': 0.41}
    """
    figures = {key.removeprefix(f"{name}."): value for key, value in line.items() if key.startswith(f"{name}.")}
    known = ("loss", "accuracy")
    return {figure: value for figure, value in sorted(figures.items()) if figure not in known and value is not None}


def summary(line: Mapping[str, Any], *, prefix: str = "") -> str:
    """Format a line of metrics for people: "mlm 6.324 (12.1%)  nsp 0.693 (52.0%)  12,345 tokens/s".

    Ratios are named: "replaced 0.241 (share 9.1%, precision 83.0%, recall 41.2%)".
    """
    parts = []
    for key, value in line.items():
        name = key.removeprefix(prefix).removesuffix("loss").removesuffix(".")
        if not (key.startswith(prefix) and key.endswith("loss")) or value is None or "." in name:
            continue
        accuracy = line.get(f"{prefix}{name}.accuracy")
        figures = [] if accuracy is None else [f"{accuracy:.1%}"]
        figures += [f"{figure} {ratio:.1%}" for figure, ratio in ratios(line, f"{prefix}{name}").items()]
        parts.append(f"{name or 'loss'} {value:.3f}" + f" ({', '.join(figures)})" * bool(figures))
    if "tokens_per_second" in line:
        parts.append(f"{line['tokens_per_second']:,.0f} tokens/s")
    if line.get("skipped_steps"):
        parts.append(f"{line['skipped_steps']:,} skipped")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Format a time for people: "8 s", "12 min", "3 h 05 min", "4 d 2 h"."""
    minutes = seconds / 60
    if seconds < 100:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes:.0f} min"
    if minutes < 48 * 60:
        return f"{minutes // 60:.0f} h {minutes % 60:02.0f} min"
    return f"{minutes // 1440:.0f} d {minutes % 1440 // 60:.0f} h"


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """The run that a tracker shows, with its settings by dotted names.

    `name`: the path relative to the current folder, or the folder's name if it is elsewhere. `id`: the tracker's own id
    of the run; "" for a new run.
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
        whole, here = folder.absolute(), Path.cwd()
        display_name = str(whole.relative_to(here)) if whole.is_relative_to(here) else whole.name
        for name in dict.fromkeys(names):
            known = self.before.get(name, {"id": "", "given": START})
            run = TrackedRun(folder=folder, name=display_name, settings=settings, id=known["id"])
            try:
                self.trackers[name] = _Turn(tracker=find_tracker(name)(run), given=tuple(known["given"]))
            except Exception as error:
                self.close()
                raise UserError(
                    f"--track {name}: the run cannot be opened there ({type(error).__name__}: {error}). Correct "
                    "that or remove --track; the same command continues the run.",
                    code="not-tracked",
                ) from error

    def add(self, *lines: Mapping[str, Any]) -> None:
        """Pass on new lines, or those in the file of a run that goes on, to the trackers that have not got them."""
        for line in lines:
            step, count = self.last
            # Several lines of one step (training, held-out) are numbered from 1. Positions compare as tuples.
            self.last = (line["step"], count + 1 if line["step"] == step else 1)
            for turn in self.trackers.values():
                if self.last > turn.given:
                    turn.waiting.append((self.last, line))
        self._give()

    def close(self) -> None:
        """Close every tracker, after a last attempt to pass on its waiting lines."""
        if any(turn.waiting for turn in self.trackers.values()):
            self._give()
        for name, turn in self.trackers.items():
            self._attempt(name, turn, turn.tracker.close)

    def _give(self) -> None:
        for name, turn in self.trackers.items():
            # Stops at the first failure, so that lines keep their order.
            while turn.waiting:
                line = turn.waiting[0][1]
                figures = {key: value for key, value in line.items() if key != "step" and value is not None}
                if not self._attempt(name, turn, partial(turn.tracker.log, line["step"], figures)):
                    break
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


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) for the settings of nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
