"""Event of a fine-tuning besides those of every training: the end of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The end of an epoch, or of a part of one: mean training loss, scores on the development rows, and whether they
    are the best so far.

    `epoch`: epochs so far, such as 1.25 if scores are more frequent. `collapsed`: the one prediction for all
    development rows although their labels differ; "" if predictions differ.
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
        """The number of epochs so far, as text."""
        return f"{round(self.epoch, 2):g}"

    def __str__(self) -> str:
        """Return one line for the console, printed while later epochs may still be better."""
        return row(self) + ("  best so far" if self.best else "")


def row(epoch: Epoch) -> str:
    """Return one line on an epoch, without the scores of single classes ("f1/label")."""
    return f"epoch {epoch.place}  training loss {epoch.loss:.4f}  dev {scores_line(epoch.metrics)}"


def scores_line(metrics: Mapping[str, float]) -> str:
    """Return scores as one line, without those of single classes."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items() if "/" not in name)
