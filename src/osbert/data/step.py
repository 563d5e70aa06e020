"""What a loader hands to the trainer: the micro-batches of one optimiser step, and where the next step begins."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from osbert.data.ragged import Places

if TYPE_CHECKING:
    from osbert.data.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """A place in the endless stream of samples: sample `index` of pool `pool` of epoch `epoch`, and the step there.

    Four integers resume a run. `step`: how many steps came before, for what changes in the course of a run.
    """

    epoch: int = 0
    pool: int = 0
    index: int = 0
    step: int = field(default=0, compare=False)


@dataclass(frozen=True)
class RankPart:
    """What one of several processes takes of every step: process `rank` of `size`. The stream itself is the same."""

    rank: int = 0
    size: int = 1

    def of(self, lengths: Places) -> Places:
        """Return the places of this part's examples, longest first, given the lengths of all (B,).

        Every example is in exactly one part. They are dealt out longest first, there and back, so that all parts have
        nearly as many tokens.
        """
        order = np.argsort(-lengths, kind="stable")
        there = np.arange(self.rank, len(order), 2 * self.size)
        back = np.arange(2 * self.size - 1 - self.rank, len(order), 2 * self.size)
        return order[np.sort(np.concatenate([there, back]))]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One optimiser step: its micro-batches, whose losses add up exactly, and where the next step begins."""

    batches: Sequence[Batch]
    cursor: Cursor


def ahead(stream: Iterator[Step]) -> Generator[Step, None, None]:
    """Yield the steps of a stream, each made by a thread while the one before is trained on.

    What the stream raises is raised here in its turn. Close the generator to let the thread end.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        try:
            coming = pool.submit(next, stream, None)
            while (step := coming.result()) is not None:
                coming = pool.submit(next, stream, None)
                yield step
        finally:
            if isinstance(stream, Generator):
                pool.submit(stream.close)


class Loader(Protocol):
    """An endless, repeatable stream of steps: the same cursor always gives the same steps."""

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield the steps from `cursor` on."""
        ...
