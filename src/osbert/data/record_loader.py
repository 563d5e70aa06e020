"""Feeds fine-tuning: endless steps over the records of a task, each epoch in a new random order.

The sequences of the records are encoded before training, or when a step needs them.

Several tasks share an encoder in a `MixedLoader`: each step has one task, sampled in proportion to size to the power of
0.7. With an exponent of 1 small tasks would hardly be seen; with 0 they would be seen far too often (Stickland and
Murray 2019; the survey, section 5.2, on multi-task learning).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.batch import micro_batches
from osbert.data.example import Example, Places, begins, ranges
from osbert.data.examples import Examples
from osbert.data.loader import Purpose, seed_of
from osbert.data.noise import Noise
from osbert.data.step import Cursor, Step

EXPONENT = 0.7
"""Tasks are sampled by their size to this power."""

Item = TypeVar("Item")


class EncodedAhead:
    """Sequences that were encoded before training, kept in memory."""

    def __init__(self, groups: Iterable[Sequence[Example]]) -> None:
        """Concatenate `groups`, the sequences of each record, into columns."""
        record_groups = list(groups)
        self.counts = np.array([len(group) for group in record_groups], np.int64)
        self.examples = Examples.of([example for group in record_groups for example in group])

    def __len__(self) -> int:
        return len(self.counts)

    def take(self, indices: Places) -> Examples:
        """Return the sequences of the records at some places, in the order given."""
        # A record has counts[r] sequences, which are adjacent in `examples`: expand record indices to sequence
        # indices.
        return self.examples.take(ranges(begins(self.counts)[indices], self.counts[indices]))


class OnDemand(Generic[Item]):
    """Sequences that are encoded at each access: training starts at once and needs less memory."""

    def __init__(self, records: Sequence[Item], encode: Callable[[Item], Sequence[Example]]) -> None:
        """Apply `encode` to items of `records` at each access."""
        self.records = records
        self.encode = encode

    def __len__(self) -> int:
        return len(self.records)

    def take(self, indices: Places) -> Examples:
        """Return the sequences of the records at some places, in the order given."""
        return Examples.of([example for index in indices.tolist() for example in self.encode(self.records[index])])


EncodedRecords = EncodedAhead | OnDemand[Any]
"""The sequences of some records, accessible by index."""


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
        corrupt: Callable[[Examples, Noise], Examples] | None = None,
        draw: Callable[[np.random.Generator], Places] | None = None,
    ) -> None:
        """Serve records in steps of `batch`, each in passes of at most `micro_tokens` tokens (0: one pass).

        `together`: the sequences of a record stay in one pass, whatever their size. `whole`: those of a step stay in
        one batch, whose passes are compared as a whole. `corrupt`: adds targets, or noise that is new in each epoch.
        `draw`: returns the records of an epoch, as many as there are; by default each once.
        """
        if not len(encoded):
            raise ValueError("there are no examples to load")
        self.encoded = encoded
        self.batch = batch
        self.micro_tokens = 0 if whole else micro_tokens
        self.pass_tokens = micro_tokens if whole else 0
        self.seed = seed
        self.together = together
        self.whole = whole
        self.corrupt = corrupt
        self.draw = draw or (lambda rng: rng.permutation(len(encoded)))

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
            order = self.draw(rng)
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
                batches = [replace(batch, whole=self.whole, pass_tokens=self.pass_tokens) for batch in batches]
                yield Step(batches=batches, cursor=after)
            # Only the first epoch after resuming starts in the middle.
            start = 0


class MixedLoader:
    """An endless stream of steps, each from one of several loaders; every loader keeps its own order.

    An epoch has as many steps as the loaders' epochs together. The choice of loaders is a function of the seed and the
    epoch, so a cursor is enough to resume.
    """

    def __init__(self, loaders: Mapping[str, RecordLoader], *, exponent: float = EXPONENT, seed: int = 0) -> None:
        """Sample from `loaders`, by name. `exponent` 1: in proportion to size; 0: uniformly."""
        self.loaders = dict(loaders)
        self.seed = seed
        sizes = np.array([len(loader.encoded) for loader in self.loaders.values()], np.float64) ** exponent
        self.probabilities: NDArray[np.float64] = sizes / sizes.sum()

    @property
    def steps_per_epoch(self) -> int:
        """The sum of the steps of the loaders' epochs."""
        return sum(loader.steps_per_epoch for loader in self.loaders.values())

    def draw_loaders(self, epoch: int) -> NDArray[np.int64]:
        """Return the index of the loader of each step of an epoch (steps_per_epoch,)."""
        rng = np.random.Generator(np.random.PCG64(seed_of(self.seed, Purpose.REPETITION, epoch)))
        return rng.choice(len(self.loaders), self.steps_per_epoch, p=self.probabilities)

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield steps from `cursor` on, without end."""
        # Replay the choices of all steps before the cursor, to count how many steps each loader has served.
        before = np.concatenate([*(self.draw_loaders(epoch) for epoch in range(cursor.epoch)), np.empty(0, np.int64)])
        before = np.concatenate([before, self.draw_loaders(cursor.epoch)[: cursor.index]])
        counts = np.bincount(before.astype(np.int64), minlength=len(self.loaders)).tolist()
        streams = []
        for loader, count in zip(self.loaders.values(), counts):
            served, step = divmod(count, loader.steps_per_epoch)
            streams.append(loader.steps(Cursor(epoch=served, index=step * loader.batch)))
        first = cursor.index
        for epoch in itertools.count(cursor.epoch):
            drawn = self.draw_loaders(epoch)
            for index in range(first, len(drawn)):
                over = index + 1 == len(drawn)
                after = Cursor(epoch=epoch + 1) if over else Cursor(epoch=epoch, index=index + 1)
                yield Step(batches=next(streams[drawn[index]]).batches, cursor=after)
            first = 0
