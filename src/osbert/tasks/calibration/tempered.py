"""A task whose probabilities are a softmax at a temperature, which its development rows decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from osbert.tasks import Prediction, Record, Task
from osbert.tasks.calibration import Calibration, calibrate, columns


@dataclass(frozen=True, kw_only=True)
class TemperedTask(Task):
    """A task of one label out of several."""

    temperature: float = 0.0
    """What scores are divided by before the softmax, so that probabilities are as sure as they are right; 0 for the one
    that suits the development rows best, 1 for the softmax as it is."""

    def __post_init__(self) -> None:
        """Refuse a temperature below 0."""
        super().__post_init__()
        if not 0 <= self.temperature < inf:
            raise ValueError(f"temperature must be above 0, or 0 to have it fitted, not {self.temperature:g}")

    def shares(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the softmax of scores (K,) at the task's temperature, 1 while none is known."""
        shares = np.exp((scores - scores.max()) / (self.temperature or 1))
        return shares / shares.sum()

    def tuned(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        """Return the task with the temperature that suits the records best, and the calibration that gives it.

        No calibration if a temperature was given, there are too few rows, or the probabilities are not the model's.
        """
        found = columns(predictions, records) if self.weighed and not self.temperature else None
        calibration = calibrate(*found) if found else None
        temperature = calibration.temperature if calibration else self.temperature or 1.0
        return replace(self, temperature=temperature), calibration

    def published(self) -> dict[str, Any]:
        """Return what the scores are multiplied by for others."""
        return {"scale": 1 / (self.temperature or 1)}
