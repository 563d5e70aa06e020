"""The learning rate as a pure function of the step: linear warm-up, then a decay to 0."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["linear", "cosine", "constant", "trapezoid"]


def share(step: float, *, steps: int, warmup: float, schedule: Schedule, decay: float = 0.0) -> float:
    """Return the learning-rate factor, 0 to 1, for update `step` of `steps`, counted from 0.

    The first round(warmup * steps) updates climb in equal stairs to 1; the rest go down to 0, which is where update
    `steps` would stand, so that no update is spent at 0. "constant" stays at 1.

    "trapezoid" stays at 1 until the last round(decay * steps) updates, in which it falls as 1 - sqrt(x), x from 0 to 1
    (Hägele et al. 2024, arXiv 2405.18392, section 3.2): until then, a run can be continued with more steps.

    >>> [round(share(step, steps=10, warmup=0.2, schedule="trapezoid", decay=0.4), 2) for step in range(10)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.55, 0.37, 0.23, 0.11]
    """
    climb = round(warmup * steps)
    if step < climb:
        return (step + 1) / climb
    if schedule == "constant":
        return 1.0
    if schedule == "trapezoid":
        fall = round(decay * steps)
        into = step - (steps - fall) + 1
        return 1.0 if into < 1 else 1.0 - math.sqrt(into / (fall + 1))
    gone = (step - climb) / (steps - climb)  # 0 at the peak, below 1 at the last update
    return 1.0 - gone if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * gone))
