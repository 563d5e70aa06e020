"""Rows of uneven lengths that lie end to end in one array: where each thing lies, and to which row it belongs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


def begins(counts: Places) -> Places:
    """Return where each of the rows begins (B,), given how many things each has."""
    found: Places = np.cumsum(counts)
    found -= counts
    return found


def ranges(starts: Places, counts: Places) -> Places:
    """Return start, start + 1, ... of each row (M,), `counts` (B,) of them, one row after the other."""
    found = np.repeat(starts - begins(counts), counts)
    found += np.arange(len(found))
    return found


def rows(counts: Places) -> tuple[Places, Places]:
    """Return of each of M things the row that it belongs to and its number in the row, (M,) each."""
    return np.repeat(np.arange(len(counts)), counts), ranges(np.zeros_like(counts), counts)
