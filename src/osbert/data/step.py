"""The steps of a run: the micro-batches of each, the cursor after it, and the pace at which the run goes through them.

A time budget corrects the pace as the run goes on. A run may have two phases: short sequences for most of the steps and
long ones for the rest (section A.2).
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Places

if TYPE_CHECKING:
    from osbert.data.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """A position in the endless stream of samples: sample `index` of pool `pool` of epoch `epoch`, and its step.

    These four integers resume a run. `step`: number of steps before, for settings that change during a run.
    """

    epoch: int = 0
    pool: int = 0
    index: int = 0
    step: int = field(default=0, compare=False)
    places: tuple[tuple[int, int, int, int], ...] = ()
    """With a curriculum of objectives: epoch, pool, index and steps of the loader of each (stages.py)."""


@dataclass(frozen=True)
class RankPart:
    """The part of every step that process `rank` of `size` trains on. All processes have the same stream."""

    rank: int = 0
    size: int = 1

    def of(self, lengths: Places) -> Places:
        """Return the indices of this part's examples, longest first, from the lengths of all examples (B,).

        Every example is in exactly one part. They are dealt out longest first, in the order 0, 1, 2, 2, 1, 0, 0, ...
        of ranks, so that all parts have nearly the same number of tokens.
        """
        order = np.argsort(-lengths, kind="stable")
        # With a period of 2 * size, a rank takes its own position on the way there and the mirrored one on the way
        # back.
        forward = np.arange(self.rank, len(order), 2 * self.size)
        back = np.arange(2 * self.size - 1 - self.rank, len(order), 2 * self.size)
        return order[np.sort(np.concatenate([forward, back]))]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One optimiser step: its micro-batches, whose losses add up exactly, and the cursor of the next step."""

    batches: Sequence[Batch]
    cursor: Cursor


def ahead(stream: Iterator[Step]) -> Generator[Step, None, None]:
    """Yield the steps of a stream; a thread makes each one while the previous one is trained on.

    Exceptions of the stream are raised here, in order. Close the generator to end the thread.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        try:
            coming = pool.submit(next, stream, None)
            # None marks the end of the stream.
            while (step := coming.result()) is not None:
                coming = pool.submit(next, stream, None)
                yield step
        finally:
            if isinstance(stream, Generator):
                # In the thread, since a generator cannot be closed while it runs in another.
                pool.submit(stream.close)


class Loader(Protocol):
    """An endless, repeatable stream of steps: the same cursor always gives the same steps."""

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield the steps from `cursor` on."""


LATER = Cursor(epoch=2**20)
"""Cursor at which the steps on long sequences begin: its epochs have another order and other masks."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """A schedule of `planned` updates, and corrections of the number of steps in which the run passes through it.

    corrections: pairs (step, steps), ascending: from update `step` on, the run has `steps` updates in total. The rest
    of the schedule is then stretched or compressed to the remaining steps, so the learning rate does not jump and
    reaches its end. Everything that changes in the course of a run is a function of the step and of these pairs: a run
    that is resumed with the same pairs is the same run.
    """

    planned: int
    corrections: tuple[tuple[int, int], ...] = ()

    @property
    def steps(self) -> int:
        """Return the total number of steps, by the last correction."""
        return self.corrections[-1][1] if self.corrections else self.planned

    def place(self, step: int) -> float:
        """Return the position of update `step`, counted from 0, in the schedule of `planned` updates.

        After 50 of 100 planned steps the other half of the schedule has to fit into 25 steps:

        >>> pace = Pace(planned=100, corrections=((50, 75),))
        >>> [pace.place(step) for step in (0, 50, 60, 75)]
        [0.0, 50.0, 70.0, 100.0]
        """
        first, reached, steps = 0, 0.0, self.planned
        for begin, corrected in self.corrections:
            if step <= begin:
                break
            # In each segment the pace is (rest of the schedule) / (rest of the steps), as of its first step.
            reached += (begin - first) * (self.planned - reached) / (steps - first)
            first, steps = begin, corrected
        # Without corrections this is step * planned / planned: exactly the step, so such runs keep every bit.
        return reached + (step - first) * (self.planned - reached) / (steps - first) if steps > first else reached

    def places(self, steps: int) -> NDArray[np.float64]:
        """Return `place` of the updates 0 to `steps` - 1, (steps,), up to the end of the schedule."""
        knots = [0, *(begin for begin, _ in self.corrections), self.steps]
        return np.interp(np.arange(steps), knots, [self.place(step) for step in knots])

    def done(self, step: int) -> float:
        """Return the fraction of the schedule, 0 to 1, that lies before update `step`; 0 without a schedule."""
        return self.place(step) / self.planned if self.planned else 0.0

    def step_at(self, position: int) -> int:
        """Return the first step whose position in the schedule is `position` or later.

        >>> Pace(planned=100, corrections=((50, 75),)).step_at(70)
        60
        """
        # Binary search: place() never decreases.
        low, high = 0, max(self.steps, position)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.place(middle) >= position else (middle + 1, high)
        return low

    def with_correction(self, step: int, steps: int) -> Pace:
        """Return the pace with `steps` in total from update `step` on. Raises ValueError if no step would be left."""
        if steps <= step or (self.corrections and step <= self.corrections[-1][0]):
            raise ValueError(f"{steps} steps in all from step {step} on, after {self.corrections}")
        return replace(self, corrections=(*self.corrections, (step, steps)))


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
