"""Ragged rows, concatenated in one array: where each row begins, and to which row each item belongs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


def begins(counts: Places) -> Places:
    """Return the start of each row (B,) from the lengths of the rows: an exclusive cumulative sum."""
    starts: Places = np.cumsum(counts)
    starts -= counts
    return starts


def ranges(starts: Places, counts: Places) -> Places:
    """Return start, start + 1, ... for each row, `counts` (B,) numbers each, concatenated (M,)."""
    # Item m of the output is m + (start of its row in the values - start of its row in the output).
    numbers = np.repeat(starts - begins(counts), counts)
    numbers += np.arange(len(numbers))
    return numbers


def rows(counts: Places) -> tuple[Places, Places]:
    """Return the row of each of M items and its index in that row, (M,) each."""
    return np.repeat(np.arange(len(counts)), counts), ranges(np.zeros_like(counts), counts)
