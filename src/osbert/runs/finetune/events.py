"""What a fine-tuning reports besides the events of every run that trains: how each epoch ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """How an epoch, or a part of one, ended: its mean training loss, the scores on the development rows, and whether
    they are the best so far.

    `epoch`: how many have passed, 1.25 where scores come more often. `collapsed`: the one answer that all these rows
    got although their labels differ; "" where all is well.
    """

    epoch: float
    step: int
    loss: float
    metrics: dict[str, float]
    best: bool
    seconds: float
    collapsed: str = ""

    @property
    def place(self) -> str:
        """Return in figures how many epochs have passed."""
        return f"{round(self.epoch, 2):g}"

    def __str__(self) -> str:
        """Return one line on it; it is printed while later epochs may still be better."""
        return row(self) + ("  best so far" if self.best else "")


def row(epoch: Epoch) -> str:
    """Return one line on an epoch; scores of single classes ("f1/label") are left for the end."""
    return f"epoch {epoch.place}  training loss {epoch.loss:.4f}  dev {scores_line(epoch.metrics)}"


def scores_line(metrics: Mapping[str, float]) -> str:
    """Return scores in a line, without those of single classes."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items() if "/" not in name)
