"""What a fine-tuning reports besides the events of every run that trains: how each epoch ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """How an epoch ended: mean training loss, scores on the development rows, and whether it is the best so far.

    `collapsed`: the one answer that all these rows got although their labels differ; "" where all is well.
    """

    epoch: int
    step: int
    loss: float
    metrics: dict[str, float]
    best: bool
    seconds: float
    collapsed: str = ""

    def __str__(self) -> str:
        """Return one line on it; it is printed while later epochs may still be better."""
        return row(self) + ("  best so far" if self.best else "")


def row(epoch: Epoch) -> str:
    """Return one line on an epoch; scores of single classes ("f1/label") are left for the end."""
    return f"epoch {epoch.epoch}  training loss {epoch.loss:.4f}  dev {scores_line(epoch.metrics)}"


def scores_line(metrics: Mapping[str, float]) -> str:
    """Return scores in a line, without those of single classes."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items() if "/" not in name)
