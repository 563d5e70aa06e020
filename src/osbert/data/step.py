"""What a loader hands to the trainer: the micro-batches of one optimiser step, and where the next step begins."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from osbert.data.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """A place in the endless stream of samples: sample `index` of pool `pool` of epoch `epoch`.

    Three integers resume a run.
    """

    epoch: int = 0
    pool: int = 0
    index: int = 0


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
        coming = pool.submit(next, stream, None)
        while (step := coming.result()) is not None:
            coming = pool.submit(next, stream, None)
            yield step


class Loader(Protocol):
    """An endless, repeatable stream of steps: the same cursor always gives the same steps."""

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield the steps from `cursor` on."""
        ...
