"""The learning rate as a pure function of the step: linear warm-up, then a decay to 0."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["linear", "cosine", "constant"]


def share(step: int, *, steps: int, warmup: float, schedule: Schedule) -> float:
    """Return the share of the peak learning rate for update `step` of `steps`, counted from 0.

    The first round(warmup * steps) updates climb in equal stairs to 1; the rest go down to 0, which is where update
    `steps` would stand, so that no update is spent at 0. "constant" stays at 1.
    """
    climb = round(warmup * steps)
    if step < climb:
        return (step + 1) / climb
    if schedule == "constant":
        return 1.0
    gone = (step - climb) / (steps - climb)  # 0 at the peak, below 1 at the last update
    return 1.0 - gone if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * gone))
