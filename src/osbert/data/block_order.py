"""The order in which the blocks of a corpus are read: each part of a mixture by its fraction of an epoch's tokens.

A part that gives an epoch more tokens than it has is read more than once; one that gives fewer goes on in the next
epoch where it stopped, so that all of it is read before any of it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, count

import numpy as np

from osbert.corpus.shards import Corpus, ShardBlock
from osbert.errors import UserError

Random = Callable[..., np.random.Generator]
"""From the key of a stream of random numbers to its generator."""


@dataclass(frozen=True)
class BlockOrder:
    """The blocks of each part, and how many of them an epoch reads."""

    blocks: Sequence[Sequence[ShardBlock]]
    counts: Sequence[int]

    @classmethod
    def of(cls, corpus: Corpus, blocks: Sequence[ShardBlock]) -> BlockOrder:
        """Return the order of some blocks of a corpus; an epoch has about as many tokens as they have together.

        Raises UserError if a part of a mixture has none of them.
        """
        groups = by_part(corpus, blocks)
        sizes = [sum(corpus.size(block) for block in group) for group in groups]
        for part, size in zip(corpus.parts, sizes):
            if not size and any(sizes):
                raise UserError(
                    f"{corpus.folder}: its part {part.name} is too small to hold some of it out and train on the "
                    "rest. Set held_out = 0, or use more text.",
                    code="too-little-data",
                )
        counts = [
            max(1, round(part.fraction * sum(sizes) * len(group) / size)) if size else 0
            for part, group, size in zip(corpus.parts, groups, sizes)
        ]
        return cls(groups, counts)

    def __len__(self) -> int:
        """Return the number of blocks of an epoch."""
        return sum(self.counts)

    @property
    def cycle(self) -> int:
        """The fewest epochs in which all blocks are read."""
        return max((-(-len(blocks) // size) for blocks, size in zip(self.blocks, self.counts) if size), default=1)

    def epoch(self, number: int, random: Random) -> list[ShardBlock]:
        """Return the blocks of an epoch in its random order, a function of its number."""
        chosen: list[ShardBlock] = []
        for part, (blocks, size) in enumerate(zip(self.blocks, self.counts)):
            first, last = number * size, (number + 1) * size
            while first < last:
                # Reading number `again` of the part, whose blocks have an order of their own unless all are taken.
                again, offset = divmod(first, len(blocks))
                taken = min(len(blocks) - offset, last - first)
                whole = taken == len(blocks)
                order = range(taken) if whole else random(part, again).permutation(len(blocks))[offset : offset + taken]
                chosen += [blocks[index] for index in order]
                first += taken
        return [chosen[index] for index in random(number).permutation(len(chosen)).tolist()]


def by_part(corpus: Corpus, blocks: Sequence[ShardBlock]) -> list[list[ShardBlock]]:
    """Divide blocks by the parts of a corpus, in their order."""
    ends = list(accumulate(part.shards for part in corpus.parts))
    return [[block for block in blocks if first <= block.shard < last] for first, last in zip([0, *ends], ends)]


def in_proportion(corpus: Corpus, blocks: Sequence[ShardBlock]) -> list[ShardBlock]:
    """Return blocks in an order whose beginnings have all parts in proportion; the last block of each comes last."""
    placed = []
    for part, group in zip(corpus.parts, by_part(corpus, blocks)):
        placed += [((index + 0.5) / part.fraction, block) for index, block in zip(count(), group[:-1])]
        placed += [(np.inf, block) for block in group[-1:]]
    return [block for _, block in sorted(placed, key=lambda item: item[0])]
