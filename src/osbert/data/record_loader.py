"""Feeds fine-tuning: endless steps over the records of a task, each epoch in a new random order."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from osbert.data.batch import micro_batches
from osbert.data.encoded_records import EncodedRecords
from osbert.data.examples import Examples
from osbert.data.loader import Purpose, seed_of
from osbert.data.noise import Noise
from osbert.data.step import Cursor, Step


class RecordLoader:
    """An endless stream of steps; the last step of an epoch is smaller if `batch` does not divide the records."""

    def __init__(
        self,
        encoded: EncodedRecords,
        *,
        batch: int,
        micro_tokens: int = 0,
        seed: int = 0,
        together: bool = False,
        whole: bool = False,
    ) -> None:
        """Serve records in steps of `batch`, each in passes of at most `micro_tokens` tokens (0: one pass).

        `together`: the sequences of a record stay in one pass, whatever their size; `whole`: those of a step do.
        """
        if not len(encoded):
            raise ValueError("there are no examples to load")
        self.encoded = encoded
        self.batch = batch
        self.micro_tokens = 0 if whole else micro_tokens
        self.seed = seed
        self.together = together
        self.whole = whole
        self.corrupt: Callable[[Examples, Noise], Examples] | None = None

    def corrupting(self, corrupt: Callable[[Examples, Noise], Examples]) -> RecordLoader:
        """Return a loader of the same steps that applies `corrupt`, with new noise in each epoch."""
        loader = copy.copy(self)
        loader.corrupt = corrupt
        return loader

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps in which every record is seen once."""
        # Division rounded up.
        return -(-len(self.encoded) // self.batch)

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield steps from `cursor` on, without end."""
        start = cursor.index
        for epoch in itertools.count(cursor.epoch):
            rng = np.random.Generator(np.random.PCG64(seed_of(self.seed, Purpose.ORDER, epoch)))
            order = rng.permutation(len(self.encoded))
            for first in range(start, len(order), self.batch):
                chosen = order[first : first + self.batch]
                end = first + len(chosen)
                after = Cursor(epoch=epoch + 1) if end == len(order) else Cursor(epoch=epoch, index=end)
                examples = self.encoded.take(chosen)
                if self.corrupt:
                    # The noise depends on the epoch and the position alone, so a resumed run repeats it.
                    key = seed_of(self.seed, Purpose.NOISE, epoch, first).generate_state(1, np.uint64)[0]
                    examples = self.corrupt(examples, Noise.at(int(key), np.arange(len(examples))))
                batches = micro_batches(examples, self.micro_tokens, together=self.together)
                yield Step(batches=[replace(batch, whole=self.whole) for batch in batches], cursor=after)
            # Only the first epoch after resuming starts in the middle.
            start = 0
