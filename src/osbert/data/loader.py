"""Feeds the trainer: endless steps of batches, each a pure function of the seed and a cursor of four integers.

Pretraining: the corpus is cut into blocks, the blocks are permuted anew each epoch and gathered in pools of about a
million tokens. The sequences of a pool are laid out and shuffled; those of a step are written out and corrupted when it
is made. A step is the next `batch` sequences of that stream, across the ends of pools and epochs, so a checkpoint needs
only the position where the step ends.

Of a mixture, each part is read by its fraction of an epoch's tokens. A part that gives an epoch more tokens than it has
is read more than once; one that gives fewer goes on in the next epoch where it stopped, so that all of it is read
before any of it again. Text is held out of every part.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from itertools import accumulate, count
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np

from osbert.corpus.shards import Corpus, ShardBlock
from osbert.data.example import Example, Places
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.data.sequences import Sequences
from osbert.data.step import Cursor, Pace, RankPart, Step
from osbert.data.workers import make_in_workers
from osbert.errors import UserError
from osbert.text.document import Document, Documents, sources

if TYPE_CHECKING:
    from osbert.data.batch import Batch

Random = Callable[..., np.random.Generator]
"""From the key of a stream of random numbers to its generator."""
BLOCKS = 128
"""The approximate least number of blocks of a corpus."""
SMALLEST_BLOCK, LARGEST_BLOCK = 128, 65_536
"""Least and most tokens of a block. They do not depend on the sequence length, so that loaders of different lengths
hold out the same text."""
TOGETHER, TOKENS_TOGETHER = 8, 2**17
"""Most steps that are made together, and roughly the most tokens."""
TELLING = 50
"""Fewest sequences that show whether an objective learns from a corpus."""
MOST_OF_A_PART = 0.1
"""Largest fraction of a part of a mixture that is held out, unless `held_out` is larger."""
UNTRIED = 4_096
"""Most tokens in one pass while `micro_tokens` is auto and no number has been chosen for it yet."""


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """How the corpus is fed to the trainer."""

    batch: int = 256
    """Sequences in one optimiser step."""
    micro_tokens: int | Literal["auto"] = "auto"
    """Most tokens in one pass through the model; a step with more is split, with the same gradient up to rounding. 0:
    one pass per step. auto: on a CPU as many as take 1 GiB of activations, beyond which passes are hardly faster; on a
    GPU as many as fit into the free memory, up to 65,536. The run keeps this number."""
    pool: int = 2**20
    """Tokens of a pool, within which examples are shuffled and next-sentence partners are chosen."""
    held_out: float = 0.01
    """Fraction of the corpus that is held out for evaluation, at most one pool; 0 for none."""
    held_out_of: Literal["parts", "whole"] = "parts"
    """Of a mixture, parts: some text of each, by its weight. whole: a few blocks of all, which may be of one part;
    so do runs that earlier versions began."""
    duplicates: int = 0
    """Static masking: sample the layouts and masks of this many epochs; later epochs repeat them in turn, each in a new
    order (dupe_factor of google-research/bert: 10). More epochs where a mixture needs them to read all of its
    text. 0 samples each epoch anew: dynamic masking."""
    workers: int = 0
    """Processes that prepare steps ahead of time, with the same result; 0 for a thread, which suffices on a CPU."""
    seed: int = 0
    """Seed of the order, the layout and the masks."""

    def __post_init__(self) -> None:
        least_values = {"batch": 1, "micro_tokens": 0, "pool": 1, "duplicates": 0, "workers": 0, "seed": 0}
        for name, least in least_values.items():
            if (value := getattr(self, name)) != "auto" and value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out must be a fraction from 0 to below 1, not {self.held_out}")

    @property
    def pass_tokens(self) -> int:
        """Most tokens in one pass, 0 for no limit; UNTRIED as long as `micro_tokens` is auto."""
        return UNTRIED if self.micro_tokens == "auto" else self.micro_tokens


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
        groups = by_part(corpus, blocks) if corpus.mixed else [[*blocks]]
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
    """Return the blocks of a mixture in an order whose beginnings have all parts in proportion; the last block of each
    comes last."""
    placed = []
    for part, group in zip(corpus.parts, by_part(corpus, blocks)):
        placed += [((index + 0.5) / part.fraction, block) for index, block in zip(count(), group[:-1])]
        placed += [(np.inf, block) for block in group[-1:]]
    return [block for _, block in sorted(placed, key=lambda item: item[0])]


class Purpose(IntEnum):
    """The purposes of random numbers. Each has a stream of its own."""

    HELD_OUT = 0
    ORDER = 1
    LAYOUT = 2
    NOISE = 3
    REPETITION = 4


class LoaderObjective(Protocol):
    """The part of an objective that the loader uses."""

    whole: ClassVar[bool]
    """Whether its loss compares all sequences of a step, so that the step must be one pass."""
    fewest_documents: ClassVar[int]
    """Fewest documents, each of another source, that `examples` needs at a time."""
    lookahead: ClassVar[int]
    """Number of tokens behind a sequence of a stream that its labels reach."""

    def examples(
        self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator
    ) -> Iterable[Example] | None:
        """Return the examples of some documents; None if any layout will do."""

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return the examples with noise and labels."""

    def idle(self, sequences: Sequences) -> str:
        """Return a remark if it can learn little from such sequences."""

    def at(self, done: float) -> LoaderObjective:
        """Return the objective with the settings that hold after the fraction `done` of the run's steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """Sequences that are laid out, and the key of their noise: sequence k has the noise of index k under the key."""

    sequences: Sequences | Examples
    key: int


Chosen = tuple[Pool, Places]
"""Some sequences of a pool, by their indices."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The sequences of one step, by index, in the order of the stream; and the cursor of the next step."""

    parts: Sequence[Chosen]
    cursor: Cursor

    def of(self, rank_part: RankPart) -> list[Chosen]:
        """Return the sequences of one process, longest first within each pool."""
        numbers = rank_part.of(np.concatenate([pool.sequences.lengths[indices] for pool, indices in self.parts]))
        rank_parts, first = [], 0
        for pool, indices in self.parts:
            # `numbers` count through the pools of the step; this pool has first to first + len(places).
            inside = numbers[(numbers >= first) & (numbers < first + len(indices))]
            rank_parts.append((pool, indices[inside - first]))
            first += len(indices)
        return rank_parts


class PretrainingLoader:
    """An endless stream of steps over a corpus, and held-out batches.

    The same corpus, settings and cursor give the same steps, bit for bit, on any machine with the same numpy.
    """

    def __init__(
        self,
        corpus: Corpus,
        objectives: Mapping[str, LoaderObjective],
        packer: Packer,
        settings: LoaderSettings,
        *,
        run_steps: int = 0,
    ) -> None:
        """Divide the corpus into training and held-out blocks.

        `run_steps`: the number of steps of the run, for objectives whose settings change; 0 if none do. Raises
        UserError if the corpus is too small for the objectives or for holding out a part.
        """
        self.corpus = corpus
        self.objectives = objectives
        self.packer = packer
        self.settings, self.pace = settings, Pace(planned=run_steps)
        self.fewest = max((objective.fewest_documents for objective in objectives.values()), default=1)
        if corpus.documents < self.fewest or not corpus.tokens:
            raise self._too_small()
        size = min(LARGEST_BLOCK, max(SMALLEST_BLOCK, corpus.tokens // BLOCKS))
        self.blocks_in_pool = max(1, round(settings.pool / size))
        self.training, self.held = self._divide(corpus.blocks(size))
        self.order = BlockOrder.of(corpus, self.training)
        self.rank_part = RankPart()
        self.notices: list[str] = []
        """Messages for the user, such as that a worker died; the caller shows them."""

    def require_sequences(self) -> list[str]:
        """Return a remark on each objective that learns little from the corpus.

        Raises UserError if an objective can make no sequence of it.
        """
        single = copy.copy(self)
        single.settings = replace(self.settings, batch=1)
        single.blocks_in_pool = max(1, self.blocks_in_pool * LARGEST_BLOCK // self.settings.pool)  # one, if it is large
        draw = next(single.draws(Cursor()))
        single.make([draw])  # here an objective refuses a corpus that it cannot learn from
        sequences = draw.parts[0][0].sequences if draw.parts else None  # none if states of the text before are kept
        if not isinstance(sequences, Sequences) or len(sequences) < TELLING:
            return []
        return [remark for objective in self.objectives.values() if (remark := objective.idle(sequences))]

    def part(self, rank_part: RankPart) -> PretrainingLoader:
        """Return a loader of the same steps that makes only one process's examples."""
        loader = copy.copy(self)
        loader.rank_part = rank_part
        return loader

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield steps of exactly `batch` sequences from `cursor` on, without end."""
        if self.settings.workers:
            yield from make_in_workers(self, cursor, workers=self.settings.workers, notices=self.notices)
        draws = self.draws(cursor)
        while True:
            yield from self.make(list(itertools.islice(draws, self.together)))

    @property
    def together(self) -> int:
        """Steps to make together: the arrays are then long enough for numpy and still fit in the cache."""
        return max(1, min(TOGETHER, TOKENS_TOGETHER // (self.settings.batch * self.packer.length)))

    def draws(self, cursor: Cursor) -> Iterator[Draw]:
        """Yield the plan of each step from `cursor` on: the cheap part of the work, which every process repeats."""
        step, missing = cursor.step, self.settings.batch
        parts: list[Chosen] = []
        empty, pools = 0, len(self._pool_starts()) - 1
        for pool, indices, pool_cursor in self._pools(cursor):
            empty = 0 if len(indices) else empty + 1
            # More empty pools in a row than an epoch has: the loop would never end.
            if empty > pools:
                raise UserError(
                    f"The documents of the corpus in {self.corpus.folder} are too short for any sequence of "
                    f"{' and '.join(self.objectives)}. Build it with another --documents, or choose other "
                    "objectives.",
                    code="too-little-data",
                )
            first = pool_cursor.index
            while first < len(indices):
                parts.append((pool, indices[first : first + missing]))
                missing -= len(parts[-1][1])
                first += len(parts[-1][1])
                if not missing:
                    step, missing = step + 1, self.settings.batch
                    yield Draw(parts=parts, cursor=replace(pool_cursor, index=first, step=step))
                    parts = []

    def make(self, draws: Sequence[Draw]) -> list[Step]:
        """Return this process's part of some steps: micro-batches of corrupted and labelled examples."""
        from osbert.data.batch import micro_batches  # loads torch, which the settings above do not need

        whole = any(objective.whole for objective in self.objectives.values())
        tokens = 0 if whole else self.settings.pass_tokens
        steps: list[Step] = []
        for objectives, group in itertools.groupby(draws, key=self._objectives_at):
            together = list(group)
            parts = [draw.of(self.rank_part) for draw in together]
            examples = self._write_examples(itertools.chain(*parts), objectives)
            last = 0
            for draw, part in zip(together, parts):
                first, last = last, last + sum(len(indices) for _, indices in part)
                batches = [replace(batch, whole=whole) for batch in micro_batches(examples[first:last], tokens)]
                steps.append(Step(batches=batches, cursor=draw.cursor))
        return steps

    def examples(self, cursor: Cursor) -> Iterator[Example]:
        """Yield the corrupted examples of the steps from `cursor` on, without end."""
        for draw in self.draws(cursor):
            yield from self._write_examples(draw.parts, self._objectives_at(draw))

    def make_held_out(self) -> list[Batch]:
        """Return this process's part of the held-out batches, with the same masks each time; [] if `held_out` is 0."""
        # Purpose.HELD_OUT has the streams 0 (which blocks), 1 (noise) and 2 (layout).
        if not self.held:
            return []
        documents, _ = self._gather(self.held, len(self.held))
        pool = Pool(
            sequences=self._lay_out(documents, self._rng(Purpose.HELD_OUT, 2)), key=self._key(Purpose.HELD_OUT, 1)
        )
        indices = np.arange(len(pool.sequences))
        steps = (indices[first : first + self.settings.batch] for first in range(0, len(indices), self.settings.batch))
        draws = [Draw(parts=[(pool, step)], cursor=Cursor()) for step in steps]
        return [batch for step in self.make(draws) for batch in step.batches]

    def _pools(self, cursor: Cursor) -> Iterator[tuple[Pool, Places, Cursor]]:
        """Yield the pools from `cursor` on, each with the order of its sequences and the position in it."""
        for epoch in itertools.count(cursor.epoch):
            # Parts of a mixture that an epoch reads in part are read whole before the epochs repeat.
            drawn = epoch % max(duplicates, self.order.cycle) if (duplicates := self.settings.duplicates) else epoch
            blocks = self.order.epoch(drawn, partial(self._rng, Purpose.ORDER))
            starts = self._pool_starts()
            pools = self._order_items(len(starts) - 1, drawn, epoch)
            for visit in range(cursor.pool, len(pools)):
                number = int(pools[visit])
                first, last = starts[number : number + 2]
                # Past its own blocks a pool reads on, around the end, only if it lacks documents for the objectives.
                documents, _ = self._gather(blocks[first:] + blocks[:first], last - first)
                rng = self._rng(Purpose.LAYOUT, drawn, number)
                sequences = self._lay_out(documents, rng)
                indices = rng.permutation(len(sequences))[self._order_items(len(sequences), drawn, epoch, number)]
                pool = Pool(sequences=sequences, key=self._key(Purpose.NOISE, drawn, number))
                yield pool, indices, replace(cursor, pool=visit)
                cursor = Cursor(epoch=epoch)
            cursor = Cursor(epoch=epoch + 1)

    def _order_items(self, count: int, drawn: int, epoch: int, *key: int) -> Places:
        """Return the order of `count` items in an epoch: unchanged, or a random one if the epoch repeats another.

        `drawn`: the epoch that sampled these layouts and masks.
        """
        return np.arange(count) if drawn == epoch else self._rng(Purpose.REPETITION, epoch, *key).permutation(count)

    def _pool_starts(self) -> list[int]:
        """Return the boundaries of pools of nearly equal size, at least the setting's unless there is only one."""
        pools = max(1, len(self.order) // self.blocks_in_pool)
        return [len(self.order) * pool // pools for pool in range(pools + 1)]

    def _lay_out(self, documents: Documents, rng: np.random.Generator) -> Sequences | Examples:
        """Return the sequences of the first objective with a layout of its own, else spans of full length."""
        for objective in self.objectives.values():
            sequences = objective.examples(documents, self.packer, rng)
            if sequences is not None:
                return sequences if isinstance(sequences, Sequences) else Examples.of([*sequences])
        return self.packer.spans(documents, rng)

    def _objectives_at(self, draw: Draw) -> Mapping[str, LoaderObjective]:
        """Return the objectives with the settings of a step, a function of the step's number alone.

        The number is one less than that in the cursor after it. Held-out steps have the settings of the first step.
        """
        done = self.pace.done(max(0, draw.cursor.step - 1))
        return {name: objective.at(done) for name, objective in self.objectives.items()}

    def _write_examples(self, parts: Iterable[Chosen], objectives: Mapping[str, LoaderObjective]) -> Examples:
        """Write sequences out, with the labels of every objective, which has its own stream of noise."""
        written, noises = [], []
        for pool, group in itertools.groupby(parts, key=lambda part: part[0]):
            indices = np.concatenate([indices for _, indices in group])
            written.append(pool.sequences.take(indices))
            noises.append(Noise.at(pool.key, indices))
        examples, noise = Examples.concatenate(written), Noise.concatenate(noises)
        for number, objective in enumerate(objectives.values()):
            examples = objective.corrupt_all(examples, self.packer, noise.stream(number))
        return examples

    def _gather(self, blocks: Sequence[ShardBlock], count: int) -> tuple[Documents, list[ShardBlock]]:
        """Return the documents of the first `count` blocks, and of more if they have too few sources; and the blocks.

        Of the further blocks only those with a new source are taken: one huge document may fill very many.
        """
        taken = list(blocks[:count])
        self.corpus.prepare(merged := merge_blocks(taken))
        documents = Documents.concatenate(self.corpus.read(block) for block in merged)
        others = iter(blocks[count:])
        while (source_count := sources(documents)) < self.fewest and (block := next(others, None)):
            more = Documents.concatenate([documents, self.corpus.read(block)])
            if sources(more) > source_count:
                documents = more
                taken.append(block)
        return documents, taken

    def _divide(self, blocks: list[ShardBlock]) -> tuple[list[ShardBlock], list[ShardBlock]]:
        """Return (training, held-out) blocks, each in the order of the corpus."""
        order = [blocks[number] for number in self._rng(Purpose.HELD_OUT, 0).permutation(len(blocks)).tolist()]
        out: set[ShardBlock] = set()
        if self.settings.held_out:
            if self.corpus.mixed and self.settings.held_out_of == "parts":
                order, block_count = self._order_by_part(order)
            else:
                block_count = max(1, min(round(self.settings.held_out * len(blocks)), self.blocks_in_pool))
                order = in_proportion(self.corpus, order) if self.corpus.mixed else order
            out.update(self._gather(order, block_count)[1])
        training, held = sorted({*order} - out), sorted(out)
        if sources(self._gather(training, 1)[0]) < self.fewest:
            raise UserError(
                f"The corpus in {self.corpus.folder} ({self.corpus.tokens:,} tokens) is too small to hold out a "
                f"fraction of {self.settings.held_out} and train on the rest. Set held_out = 0, or use more text.",
                code="too-little-data",
            )
        return training, held

    def _order_by_part(self, blocks: Sequence[ShardBlock]) -> tuple[list[ShardBlock], int]:
        """Return the blocks of a mixture, first those to hold out, and the number of these.

        Each part gives some of its text by its fraction of an epoch. A block that is too large for that is cut in two.
        """
        tokens = min(self.settings.held_out * self.corpus.tokens, self.settings.pool)
        largest = max(self.settings.held_out, MOST_OF_A_PART)
        out, others = [], []
        for part, group in zip(self.corpus.parts, by_part(self.corpus, blocks)):
            missing = min(max(part.fraction * tokens, SMALLEST_BLOCK), largest * part.tokens)
            if len(group) > 1 and all(block.last - block.first == 1 for block in group):
                missing = max(missing, min(map(self.corpus.size, group)))  # no block can be cut
            for block in group:
                single = block.last - block.first == 1
                if missing < 1 or not (size := self.corpus.size(block)) or (single and size > missing):
                    others.append(block)
                elif size <= missing:
                    out.append(block)
                    missing -= size
                else:
                    rest, held = self.corpus.cut(block, round(missing))
                    others.append(rest)
                    out.append(held)
                    missing = 0
        return [*out, *in_proportion(self.corpus, others)], len(out)

    def _too_small(self) -> UserError:
        names = [name for name, objective in self.objectives.items() if objective.fewest_documents == self.fewest]
        others = [name for name in self.objectives if name not in names] or ["mlm"]
        wanted = ", ".join(f'"{name}"' for name in others)
        return UserError(
            f"The corpus in {self.corpus.folder} holds {self.corpus.documents:,} document(s) with "
            f"{self.corpus.tokens:,} tokens; {' and '.join(names)} needs {self.fewest} documents or more. "
            f"Set objectives = [{wanted}], or build the corpus with another --documents (file, blank-line or line).",
            code="too-little-data",
        )

    def _rng(self, purpose: Purpose, *key: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(seed_of(self.settings.seed, purpose, *key)))

    def _key(self, purpose: Purpose, *key: int) -> int:
        """Return the key of a stream of noise."""
        return int(seed_of(self.settings.seed, purpose, *key).generate_state(1, np.uint64)[0])


def merge_blocks(blocks: Iterable[ShardBlock]) -> list[ShardBlock]:
    """Sort blocks in the order of the corpus and merge neighbours, so that documents are not cut between them."""
    whole: list[ShardBlock] = []
    for block in sorted(blocks):
        if whole and (whole[-1].shard, whole[-1].last) == (block.shard, block.first):
            whole[-1] = ShardBlock(block.shard, whole[-1].first, block.last)
        else:
            whole.append(block)
    return whole


def seed_of(seed: int, purpose: Purpose, *key: int) -> np.random.SeedSequence:
    """Return the seed of a purpose's random numbers; `key` distinguishes its streams."""
    return np.random.SeedSequence(seed, spawn_key=(purpose, *key))
