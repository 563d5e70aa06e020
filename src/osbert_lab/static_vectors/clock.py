"""The time budget of a run of static vectors, read by all its processes."""

from __future__ import annotations

import time
from dataclasses import dataclass

MARGIN = 0.02
"""Fraction of the minutes in reserve."""
ENDING = 1.5
"""Seconds in reserve for writing the model."""


@dataclass(frozen=True, kw_only=True)
class LearningClock:
    """A budget of `seconds` since `begun`, by time.monotonic, which is the same in all processes of a machine.

    >>> LearningClock.of(1.0, spent=60.0).over
    True
    """

    seconds: float
    begun: float

    @classmethod
    def of(cls, minutes: float, *, spent: float) -> LearningClock:
        """Return the clock of a run of so many minutes that has already taken `spent` seconds."""
        seconds = max(60 * minutes * (1 - MARGIN) - ENDING, 1e-3)
        return cls(seconds=seconds, begun=time.monotonic() - spent)

    @property
    def passed(self) -> float:
        """The fraction of the budget that has passed; above 1 after its end."""
        return (time.monotonic() - self.begun) / self.seconds

    @property
    def over(self) -> bool:
        """Whether the budget is spent."""
        return self.passed >= 1
