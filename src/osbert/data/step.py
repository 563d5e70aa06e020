"""The output of a loader: the micro-batches of one optimiser step, and the cursor of the next step."""

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
        ...
