"""The learning rate as a pure function of the step: linear warm-up, then a decay to 0."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["linear", "cosine", "constant", "trapezoid"]


def rate_factor(step: float, *, steps: int, warmup: float, schedule: Schedule, decay: float = 0.0) -> float:
    """Return the learning-rate factor, 0 to 1, for update `step` of `steps`, counted from 0.

    It rises to 1 in round(warmup * steps) equal steps, then falls to 0, which it would reach at update `steps`, so that
    no update has a factor of 0. "constant" stays at 1.

    "trapezoid" stays at 1 until the last round(decay * steps) updates, in which it is 1 - sqrt(x), x from 0 to 1
    (Hägele et al. 2024, arXiv 2405.18392, section 3.2): until then, a run can be continued with more steps.

    >>> [round(rate_factor(step, steps=10, warmup=0.2, schedule="trapezoid", decay=0.4), 2) for step in range(10)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.55, 0.37, 0.23, 0.11]
    """
    climb = round(warmup * steps)
    if step < climb:
        return (step + 1) / climb
    if schedule == "constant":
        return 1.0
    if schedule == "trapezoid":
        fall = round(decay * steps)
        # 1 at the first falling update, so that this one is already below 1 and the last one above 0.
        into = step - (steps - fall) + 1
        return 1.0 if into < 1 else 1.0 - math.sqrt(into / (fall + 1))
    gone = (step - climb) / (steps - climb)  # 0 at the peak, below 1 at the last update
    return 1.0 - gone if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * gone))
