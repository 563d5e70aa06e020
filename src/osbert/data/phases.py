"""Two phases in one run: short sequences for most of the steps, long ones for the rest (section A.2)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from osbert.data.pace import Pace
from osbert.data.step import Cursor, Loader, Step

LATER = Cursor(epoch=2**20)
"""Cursor at which the steps on long sequences begin: its epochs have another order and other masks."""


class Phases:
    """The steps of one loader up to a step of the run, then those of another."""

    def __init__(self, first: Loader, second: Loader, *, switch: int) -> None:
        """Change to the second at step `switch` of the schedule."""
        self.first = first
        self.second = second
        self.switch = self.planned_switch = switch

    @property
    def pace(self) -> Pace:
        """The pace of the run, common to both loaders. Setting it moves the switch."""
        return self.first.pace  # type: ignore[attr-defined]

    @pace.setter
    def pace(self, pace: Pace) -> None:
        self.first.pace = self.second.pace = pace  # type: ignore[attr-defined]
        self.switch = pace.step_at(self.planned_switch)

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield the steps from `cursor` on. It is a cursor of the loader of that step."""
        if cursor.step < self.switch:
            yield from itertools.islice(self.first.steps(cursor), self.switch - cursor.step)
        # Cursors of the first loader, including one right at the switch, mean nothing to the second one.
        if cursor.step <= self.switch:
            cursor = replace(LATER, step=self.switch)
        yield from self.second.steps(cursor)
