"""Two phases are one stream, wherever it is stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osbert.data.step import LATER, Cursor, Phases, Step


class Numbered:
    """A loader whose step's cursor says where it is and whose batches say whose it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def steps(self, cursor: Cursor):
        index = cursor.index
        while True:
            index += 1
            yield Step(batches=[self.name, cursor.epoch, index], cursor=Cursor(epoch=cursor.epoch, index=index))


@pytest.mark.parametrize("stop", range(8))
def test_phases_change_at_their_step_wherever_a_run_was_stopped(stop) -> None:
    taken, cursor = [], Cursor()
    for many in (stop, 8 - stop):
        phases = Phases(Numbered("short"), Numbered("long"), switch=5)
        stream = phases.steps(replace(cursor, step=len(taken)))
        for _ in range(many):
            step = next(stream)
            taken.append(step.batches)
            cursor = step.cursor
    assert taken == [["short", 0, n] for n in range(1, 6)] + [["long", LATER.epoch, n] for n in range(1, 4)]
