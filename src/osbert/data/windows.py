"""Windows: a text longer than a model reads is read in overlapping parts, each piece where it has most context."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """The pieces from `start` to before `end` are read together; those from `first` to before `last` count here.

    Each piece of a text counts in exactly one window: the one in which the nearer edge is farthest away, the later of
    two alike (Devlin et al.'s "maximum context").
    """

    start: int
    end: int
    first: int
    last: int


def windows(count: int, *, room: int, overlap: int) -> list[Window]:
    """Return the windows over `count` pieces, of `room` pieces each but the last; neighbours share `overlap` pieces.

    They share at most half of a window, so that each brings something new.
    """
    step = room - min(overlap, room // 2)
    starts = [0]
    while starts[-1] + room < count:
        starts.append(starts[-1] + step)
    ends = [min(start + room, count) for start in starts]
    borders = [0, *((start + end) // 2 for start, end in zip(starts[1:], ends)), count]
    return [Window(*window) for window in zip(starts, ends, borders, borders[1:])]
