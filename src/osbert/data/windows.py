"""Windows: a text longer than a model reads is read in overlapping parts, each piece where it has most context."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple


class TextWindow(NamedTuple):
    """The pieces from `start` to before `end` are read together; those from `first` to before `last` count here.

    Each piece of a text counts in exactly one window: the one in which the nearer edge is farthest away, the later of
    two alike (Devlin et al.'s "maximum context").
    """

    start: int
    end: int
    first: int
    last: int


def windows(count: int, *, room: int, overlap: int) -> list[TextWindow]:
    """Return the windows over `count` pieces, of `room` pieces each but the last.

    Neighbours have `overlap` pieces in common, at most half of a window (`step`).

    Of the two pieces that both windows have, each counts in the window in which more pieces stand around it:

    >>> for window in windows(10, room=6, overlap=2):
    ...     print(window)
    TextWindow(start=0, end=6, first=0, last=5)
    TextWindow(start=4, end=10, first=5, last=10)
    """
    bounds = spread(count, room, step(room, overlap))
    borders = [0, *((start + end) // 2 for (start, _), (_, end) in zip(bounds[1:], bounds)), count]
    return [TextWindow(*ends, *counted) for ends, counted in zip(bounds, pairwise(borders))]


def step(room: int, overlap: int) -> int:
    """Return the distance between the starts of windows of `room` pieces that overlap by `overlap`, at most by half.

    >>> step(10, 2), step(10, 9)
    (8, 5)
    """
    return room - min(overlap, room // 2)


def spread(count: int, room: int, step: int) -> list[tuple[int, int]]:
    """Return windows [begin, end) over `count` pieces, one at least, as google-research/bert's run_squad.py lays them.

    Each has `room` pieces, the last one what is left; they begin `step` apart, or `room` where that is less.
    """
    step = min(step, room)
    number = 1 + max(0, -(-(count - room) // step))
    return [(place * step, min(place * step + room, count)) for place in range(number)]
