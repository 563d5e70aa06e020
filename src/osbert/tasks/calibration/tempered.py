"""Tasks whose probabilities are a softmax with a temperature, fitted to development rows."""

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
    """A task with one label out of several, whose softmax has a temperature."""

    temperature: float = 0.0
    """Divisor of the logits before the softmax, so that confidence matches accuracy; 0 to fit it to the development
    rows, 1 for the plain softmax."""

    def __post_init__(self) -> None:
        """Raise ValueError for a temperature below 0."""
        super().__post_init__()
        if not 0 <= self.temperature < inf:
            raise ValueError(f"temperature must be above 0, or 0 to have it fitted, not {self.temperature:g}")

    def softmax(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the softmax of scores (K,) at the task's temperature, 1 if it is not fitted yet."""
        # Subtracting the maximum avoids overflow; `or 1`: 0 means not fitted.
        exponentials = np.exp((scores - scores.max()) / (self.temperature or 1))
        return exponentials / exponentials.sum()

    def tune(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> tuple[Self, Calibration | None]:
        """Return the task with the temperature fitted to the records, and the calibration.

        No calibration if a temperature was given, there are too few rows, or the probabilities are not the model's.
        """
        calibration_data = columns(predictions, records) if self.weighed and not self.temperature else None
        calibration = calibrate(*calibration_data) if calibration_data else None
        temperature = calibration.temperature if calibration else self.temperature or 1.0
        return replace(self, temperature=temperature), calibration

    def export_metadata(self) -> dict[str, Any]:
        """Return the factor of the logits, 1 / temperature, as "scale"."""
        return {"scale": 1 / (self.temperature or 1)}
