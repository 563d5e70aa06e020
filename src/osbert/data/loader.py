"""Feeds the trainer: endless steps of batches, each a pure function of the seed and a cursor of three integers.

Pretraining: the corpus is cut into blocks, the blocks are permuted anew each epoch and gathered in pools of about a
million tokens. The examples of a pool are laid out, shuffled, and corrupted one by one as they are asked for. A step is
the next `batch` examples of that stream, across the ends of pools and epochs, so the place where a step ends is all
that a run has to remember.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np

from osbert.corpus.shards import Block, Corpus
from osbert.data.batch import Batch, collate, split
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.data.step import Cursor, Step
from osbert.errors import UserError
from osbert.text.document import Document

BLOCKS = 128
"""A corpus is cut into at least about so many blocks."""
SMALLEST_BLOCK, LARGEST_BLOCK = 128, 65_536
"""The least and the most tokens that a block is cut to. Nothing here depends on a sequence's length: loaders of several
lengths hold out the same text."""


class Purpose(IntEnum):
    """What random numbers are drawn for. Each purpose has a stream of its own."""

    HELD_OUT = 0
    ORDER = 1
    LAYOUT = 2
    NOISE = 3


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """How the corpus is fed to the trainer."""

    batch: int = 256
    """Sequences in one optimiser step."""
    micro_tokens: int = 0
    """Most tokens in one pass through the model; a step with more is split. 0 for one pass a step."""
    pool: int = 2**20
    """Tokens within which examples are shuffled and next-sentence partners are found."""
    held_out: float = 0.01
    """Share of the corpus that is kept out of training to measure on, at most one pool; 0 for none."""
    seed: int = 0
    """Decides the order, the layout and the masks."""

    def __post_init__(self) -> None:
        """Refuse what no stream can be made with."""
        for name, least in (("batch", 1), ("micro_tokens", 0), ("pool", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out is a share from 0 to below 1, not {self.held_out}")


class Objective(Protocol):
    """What the loader asks of an objective."""

    @property
    def fewest_documents(self) -> int:
        """How many documents `examples` needs at a time."""
        ...

    def examples(
        self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator
    ) -> Iterator[Example] | None:
        """Yield the examples of some documents, or return None when any layout will do."""
        ...

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the example with noise and labels."""
        ...


class PretrainingLoader:
    """An endless stream of steps over a corpus, and batches that are kept out of it.

    The same corpus, settings and cursor give the same steps, bit for bit, on any machine with the same numpy.
    """

    def __init__(
        self, corpus: Corpus, objectives: Mapping[str, Objective], packer: Packer, settings: LoaderSettings
    ) -> None:
        """Divide the corpus into training and held-out blocks.

        Raises UserError when the corpus is too small for the objectives or for keeping something out.
        """
        self.corpus = corpus
        self.objectives = objectives
        self.packer = packer
        self.settings = settings
        self.fewest = max((objective.fewest_documents for objective in objectives.values()), default=1)
        self._check_corpus()
        size = min(LARGEST_BLOCK, max(SMALLEST_BLOCK, corpus.tokens // BLOCKS))
        self.blocks_in_pool = max(1, round(settings.pool / size))
        self.training, self.held = self._divide(corpus.blocks(size))

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield steps of exactly `batch` sequences from `cursor` on, without end."""
        stream = self._stream(cursor)
        while drawn := list(itertools.islice(stream, self.settings.batch)):
            examples = [example for example, _ in drawn]
            yield Step(batches=micro_batches(examples, self.settings.micro_tokens), cursor=drawn[-1][1])

    def held_out(self) -> list[Batch]:
        """Return the batches kept out of training, always with the same masks; none when `held_out` is 0."""
        if not self.held:
            return []
        documents, _ = self._gather(self.held, len(self.held))
        noise = self._noise(Purpose.HELD_OUT, 1)
        laid_out = self._lay_out(documents, self._rng(Purpose.HELD_OUT, 2))
        examples = [self._corrupt(example, noise.at(index)) for index, example in enumerate(laid_out)]
        size = self.settings.batch
        groups = (examples[start : start + size] for start in range(0, len(examples), size))
        return [batch for group in groups for batch in micro_batches(group, self.settings.micro_tokens)]

    def _stream(self, cursor: Cursor) -> Iterator[tuple[Example, Cursor]]:
        """Yield the examples from `cursor` on, each with the cursor of the one after it."""
        pool, index = cursor.pool, cursor.index
        for epoch in itertools.count(cursor.epoch):
            order = self._rng(Purpose.ORDER, epoch).permutation(len(self.training)).tolist()
            blocks = [self.training[number] for number in order]
            starts = self._pool_starts()
            for number in range(pool, len(starts) - 1):
                examples = self._pool(blocks, starts[number : number + 2], (epoch, number))
                noise = self._noise(Purpose.NOISE, epoch, number)
                for place in range(index, len(examples)):
                    example = self._corrupt(examples[place], noise.at(place))
                    yield example, Cursor(epoch=epoch, pool=number, index=place + 1)
                index = 0
            pool = index = 0

    def _pool(self, blocks: list[Block], span: Sequence[int], key: tuple[int, int]) -> list[Example]:
        """Return the shuffled examples of the pool of blocks[span], not corrupted yet."""
        first, last = span
        # Past its own blocks a pool reads on, around the end, only if it lacks documents for the objectives.
        documents, _ = self._gather(blocks[first:] + blocks[:first], last - first)
        rng = self._rng(Purpose.LAYOUT, *key)
        examples = self._lay_out(documents, rng)
        return [examples[place] for place in rng.permutation(len(examples)).tolist()]

    def _pool_starts(self) -> list[int]:
        """Return the boundaries of pools of nearly equal size, none smaller than the setting unless there is one."""
        pools = max(1, len(self.training) // self.blocks_in_pool)
        return [len(self.training) * pool // pools for pool in range(pools + 1)]

    def _lay_out(self, documents: Sequence[Document], rng: np.random.Generator) -> list[Example]:
        """Return the examples of the first objective that lays any out, else full spans."""
        for objective in self.objectives.values():
            examples = objective.examples(documents, self.packer, rng)
            if examples is not None:
                return list(examples)
        return list(self.packer.spans(documents, rng))

    def _corrupt(self, example: Example, rng: np.random.Generator) -> Example:
        for objective in self.objectives.values():
            example = objective.corrupt(example, self.packer, rng)
        return example

    def _gather(self, blocks: Sequence[Block], count: int) -> tuple[list[Document], int]:
        """Return the documents of the first `count` blocks, and of more until they suffice; and how many blocks."""
        documents = [document for block in joined(blocks[:count]) for document in self.corpus.read(block)]
        while len(documents) < self.fewest and count < len(blocks):
            documents += self.corpus.read(blocks[count])
            count += 1
        return documents, count

    def _divide(self, blocks: list[Block]) -> tuple[list[Block], list[Block]]:
        """Return (training, held-out) blocks, each in the order of the corpus."""
        order = self._rng(Purpose.HELD_OUT, 0).permutation(len(blocks)).tolist()
        held = 0
        if self.settings.held_out:
            share = min(round(self.settings.held_out * len(blocks)), self.blocks_in_pool)
            _, held = self._gather([blocks[number] for number in order], max(1, share))
        kept, out = sorted(order[held:]), sorted(order[:held])
        if len(self._gather([blocks[number] for number in kept], 1)[0]) < self.fewest:
            raise UserError(
                f"The corpus in {self.corpus.folder} ({self.corpus.tokens:,} tokens) is too small to keep a share of "
                f"{self.settings.held_out} out of it and train on the rest. Set held_out = 0, or use more text."
            )
        return [blocks[number] for number in kept], [blocks[number] for number in out]

    def _check_corpus(self) -> None:
        if self.corpus.documents >= self.fewest and self.corpus.tokens:
            return
        names = [name for name, objective in self.objectives.items() if objective.fewest_documents == self.fewest]
        others = [name for name in self.objectives if name not in names] or ["mlm"]
        wanted = ", ".join(f'"{name}"' for name in others)
        raise UserError(
            f"The corpus in {self.corpus.folder} holds {self.corpus.documents:,} document(s) with "
            f"{self.corpus.tokens:,} tokens; {' and '.join(names)} needs {self.fewest} documents or more. "
            f"Set objectives = [{wanted}], or build the corpus with another --documents (file, blank-line or line)."
        )

    def _rng(self, purpose: Purpose, *key: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(_seed(self.settings.seed, purpose, *key)))

    def _noise(self, purpose: Purpose, *key: int) -> _Noise:
        return _Noise(_seed(self.settings.seed, purpose, *key))


class ExampleLoader:
    """An endless stream of steps over examples that are there already: fine-tuning.

    Each epoch has an order of its own; its last step is shorter when `batch` does not divide the examples.
    """

    def __init__(self, examples: Sequence[Example], *, batch: int, micro_tokens: int = 0, seed: int = 0) -> None:
        """Serve `examples` in steps of `batch`, each in passes of at most `micro_tokens` tokens (0: one pass)."""
        if not examples:
            raise ValueError("there are no examples to load")
        self.examples = examples
        self.batch = batch
        self.micro_tokens = micro_tokens
        self.seed = seed

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps in which every example is seen once."""
        return -(-len(self.examples) // self.batch)

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield steps from `cursor` on, without end."""
        start = cursor.index
        for epoch in itertools.count(cursor.epoch):
            rng = np.random.Generator(np.random.PCG64(_seed(self.seed, Purpose.ORDER, epoch)))
            places = rng.permutation(len(self.examples)).tolist()
            for first in range(start, len(places), self.batch):
                chosen = [self.examples[place] for place in places[first : first + self.batch]]
                end = first + len(chosen)
                over = end == len(places)
                after = Cursor(epoch=epoch + 1) if over else Cursor(epoch=epoch, index=end)
                yield Step(batches=micro_batches(chosen, self.micro_tokens), cursor=after)
            start = 0


def micro_batches(examples: Sequence[Example], tokens: int) -> list[Batch]:
    """Return the examples as batches of at most `tokens` tokens each; as one batch when `tokens` is 0."""
    return [collate(group) for group in split(examples, tokens=tokens)] if tokens else [collate(examples)]


def joined(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks in the order of the corpus, neighbours made one, so that a document cut between them is whole."""
    whole: list[Block] = []
    for block in sorted(blocks, key=lambda block: (block.shard, block.first)):
        if whole and (whole[-1].shard, whole[-1].last) == (block.shard, block.first):
            whole[-1] = Block(block.shard, whole[-1].first, block.last)
        else:
            whole.append(block)
    return whole


class _Noise:
    """One random stream with a fixed place for each example, so that example k needs none of those before it."""

    STRIDE = 2**64

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self.bits = np.random.PCG64(seed)
        self.start = self.bits.state
        self.rng = np.random.Generator(self.bits)

    def at(self, index: int) -> np.random.Generator:
        """Return the generator, set to where example `index` begins."""
        self.bits.state = self.start
        self.bits.advance(index * self.STRIDE)
        return self.rng


def _seed(seed: int, purpose: Purpose, *key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(purpose, *key))
