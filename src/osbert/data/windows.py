"""Overlapping windows over a text that is too long for the model; each piece counts where it has most context."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple


class TextWindow(NamedTuple):
    """Pieces [start, end) are the model's input; the results for pieces [first, last) are used.

    Each piece counts in exactly one window: the one in which it is farthest from the nearer edge, the later one in a
    tie (Devlin et al.'s "maximum context").
    """

    start: int
    end: int
    first: int
    last: int


def windows(count: int, *, room: int, overlap: int) -> list[TextWindow]:
    """Return the windows over `count` pieces: `room` pieces each, except for the last.

    Neighbouring windows share `overlap` pieces, at most half of a window (`step`).

    Of the two pieces that both windows contain, each counts in the window where it has more context:

    >>> for window in windows(10, room=6, overlap=2):
    ...     print(window)
    TextWindow(start=0, end=6, first=0, last=5)
    TextWindow(start=4, end=10, first=5, last=10)
    """
    bounds = spread(count, room, step(room, overlap))
    # Inside an overlap [start, end) the context is balanced at the middle: earlier pieces belong to the earlier
    # window.
    borders = [0, *((start + end) // 2 for (start, _), (_, end) in zip(bounds[1:], bounds)), count]
    return [TextWindow(*ends, *counted) for ends, counted in zip(bounds, pairwise(borders))]


def step(room: int, overlap: int) -> int:
    """Return the stride of windows of `room` pieces that overlap by `overlap` pieces, at most by half.

    >>> step(10, 2), step(10, 9)
    (8, 5)
    """
    return room - min(overlap, room // 2)


def spread(count: int, room: int, step: int) -> list[tuple[int, int]]:
    """Return windows [begin, end) over `count` pieces, at least one, as in google-research/bert's run_squad.py.

    Each has `room` pieces, the last one the rest. The stride is `step`, at most `room`.
    """
    step = min(step, room)
    # One window, and as many more as it takes to cover the rest (division rounded up).
    number = 1 + max(0, -(-(count - room) // step))
    return [(index * step, min(index * step + room, count)) for index in range(number)]
