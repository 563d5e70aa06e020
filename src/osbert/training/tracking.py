"""How a run is followed: metrics.jsonl for machines, reports and trackers, and its lines in words."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.files import flush, write_text
from osbert.guarded import parse_json, require_regular

if TYPE_CHECKING:
    from osbert.training.progress import Mean, Progress
    from osbert.training.tracker_queue import TrackerQueue

NAME = "metrics.jsonl"
HELD_OUT, BEFORE, GENERAL = "held_out", "held_out_before", "general"
"""What names begin with that were measured on held-out text: of this run's corpus, of the one before, and general."""


class Metrics:
    """metrics.jsonl: one flat JSON object a line, with names such as "mlm.loss" and "held_out.mlm.loss".

    A line of training holds means over the steps since the one before, skipped steps apart. The sums between two lines
    live in `memory`: saved with a checkpoint, they let a resumed run write the lines an undisturbed one would.
    """

    def __init__(self, folder: Path, *, every: int, memory: dict[str, Any], queue: TrackerQueue | None = None) -> None:
        """Write into `folder`, a line of training each `every` steps and at the end; `queue` gets each line, too."""
        self.path = folder / NAME
        self.every = every
        self.memory = memory
        self.queue = queue
        self.unwritten: list[str] = []
        """Lines that a full disk refused; they are tried again with the next line."""

    def go_back(self, step: int) -> None:
        """Drop the lines after `step`, all of them before the first, and a last line that was cut off."""
        lines = [line for line in read_lines(self.path) if 0 < step >= line["step"]]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in lines))
        if self.queue:
            self.queue.begin(lines)

    def step(self, progress: Progress) -> dict[str, Any] | None:
        """Take note of a step; return the line of training that ends with it, if one does."""
        memory = self.memory.setdefault("metrics", {"sums": {}, "before": [0, 0.0, 0.0]})
        if not progress.skipped:
            for name, value in values(progress).items():
                total, count = memory["sums"].get(name, (0.0, 0))
                memory["sums"][name] = (total + value, count + 1)
        if progress.step % self.every and progress.step != progress.steps:
            return None
        means = {name: total / count for name, (total, count) in memory["sums"].items()}
        line = {
            "step": progress.step,
            **means,
            "learning_rate": progress.learning_rate,
            "tokens": progress.tokens,
            "skipped_steps": progress.skipped_steps,
            **_clock(progress, *memory["before"]),
        }
        memory.update(sums={}, before=[progress.tokens, progress.seconds, progress.loader_seconds])
        self.write(line)
        return line

    def held_out(self, step: int, means: Mapping[str, Mean], *, of: str = HELD_OUT) -> dict[str, Any]:
        """Write and return the line of a look at held-out batches."""
        line: dict[str, Any] = {"step": step, f"{of}.loss": sum(mean.weight * mean.loss for mean in means.values())}
        for name, mean in means.items():
            line[f"{of}.{name}.loss"] = mean.loss
            if mean.accuracy is not None:
                line[f"{of}.{name}.accuracy"] = mean.accuracy
            line |= {f"{of}.{name}.{figure}": value for figure, value in mean.ratios.items()}
        self.write(line)
        return line

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line, which must have a "step"; what a full disk refuses is kept for the next time."""
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in line.items()
        }
        self.unwritten.append(json.dumps(finite) + "\n")
        self.settle()
        if self.queue:
            self.queue.add(finite)

    def settle(self) -> None:
        """Write the lines that a full disk has refused so far, if it takes them now."""
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
                os.truncate(self.path, size)

    def close(self) -> None:
        """Let the trackers finish; metrics.jsonl is whole after every line."""
        if self.queue:
            self.queue.close()


class SilentMetrics:
    """Stands for the Metrics of a process that leaves the writing to another."""

    def go_back(self, step: int) -> None:
        """Change nothing."""

    def step(self, progress: Progress) -> None:
        """Return no line."""

    def held_out(self, step: int, means: Mapping[str, Mean], *, of: str = HELD_OUT) -> dict[str, Any]:
        """Return a line without values."""
        return {"step": step}

    def close(self) -> None:
        """Close nothing."""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl, none if there is no file; what a power cut left at its end is left out."""
    found: list[dict[str, Any]] = []
    if path.exists():
        require_regular(path)
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            try:
                value = parse_json(line)
            except ValueError:
                break
            if not line.endswith("\n") or not isinstance(value, dict):
                break
            found.append(value)
    return found


def values(progress: Progress) -> dict[str, float]:
    """Return a step's losses, accuracies, ratios and norm of the gradient, by their names in a line of metrics."""
    found = {"loss": progress.loss}
    for name, loss in progress.losses.items():
        found[f"{name}.loss"] = loss
        if name in progress.accuracies:
            found[f"{name}.accuracy"] = progress.accuracies[name]
    return found | {**progress.ratios} | {"gradient_norm": progress.gradient_norm}


def ratios(line: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return the ratios that a line of metrics has of an objective, by their names, such as "recall".

    >>> ratios({"held_out.replaced.loss": 0.24, "held_out.replaced.recall": 0.41}, "held_out.replaced")
    {'recall': 0.41}
    """
    figures = {key.removeprefix(f"{name}."): value for key, value in line.items() if key.startswith(f"{name}.")}
    known = ("loss", "accuracy")
    return {figure: value for figure, value in sorted(figures.items()) if figure not in known and value is not None}


def summary(line: Mapping[str, Any], *, prefix: str = "") -> str:
    """Return a line of metrics for people: "mlm 6.324 (12.1%)  nsp 0.693 (52.0%)  12,345 tokens/s".

    Ratios are named: "replaced 0.241 (share 9.1%, precision 83.0%, recall 41.2%)".
    """
    parts = []
    for key, value in line.items():
        name = key.removeprefix(prefix).removesuffix("loss").removesuffix(".")
        if not (key.startswith(prefix) and key.endswith("loss")) or value is None or "." in name:
            continue
        accuracy = line.get(f"{prefix}{name}.accuracy")
        shown = [] if accuracy is None else [f"{accuracy:.1%}"]
        shown += [f"{figure} {share:.1%}" for figure, share in ratios(line, f"{prefix}{name}").items()]
        parts.append(f"{name or 'loss'} {value:.3f}" + f" ({', '.join(shown)})" * bool(shown))
    if "tokens_per_second" in line:
        parts.append(f"{line['tokens_per_second']:,.0f} tokens/s")
    if line.get("skipped_steps"):
        parts.append(f"{line['skipped_steps']:,} skipped")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Return a time for people: "8 s", "12 min", "3 h 05 min", "4 d 2 h"."""
    minutes = seconds / 60
    if seconds < 100:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes:.0f} min"
    if minutes < 48 * 60:
        return f"{minutes // 60:.0f} h {minutes % 60:02.0f} min"
    return f"{minutes // 1440:.0f} d {minutes % 1440 // 60:.0f} h"


def _clock(progress: Progress, tokens: int, seconds: float, loader_seconds: float) -> dict[str, float]:
    """Return the seconds since the beginning, and the pace since the given counts."""
    passed = max(progress.seconds - seconds, 1e-9)
    return {
        "seconds": round(progress.seconds, 3),
        "tokens_per_second": round((progress.tokens - tokens) / passed, 1),
        "loader_share": round((progress.loader_seconds - loader_seconds) / passed, 4),
    }
