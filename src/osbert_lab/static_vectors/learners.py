"""The work of one process in a round of word2vec or GloVe: updates the tables from its part of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.corpus.shards import Corpus, ShardBlock
from osbert.data.loader import BlockOrder
from osbert_lab.static_vectors import glove, word2vec
from osbert_lab.static_vectors.clock import LearningClock
from osbert_lab.static_vectors.pair_counts import PairCounts, write_shuffled
from osbert_lab.static_vectors.settings import GloveSettings, MethodSettings, Word2VecSettings

BLOCK = 1 << 16
"""Words that are read and processed at a time. Windows do not cross the ends of a block."""
PARTS = 128
"""Approximate fewest blocks of a mixture."""
ROUND = 64
"""Blocks in a round of word2vec. The tables are saved after each round."""
LOOK = 50
"""The loss is measured at every LOOK-th step."""
LOWEST_RATE = 1e-4
"""Final learning rate of word2vec, as a fraction of the first one."""
CELLS = 1024
"""Most cells in a step of GloVe."""
SPREAD = 16
"""Fewest vocabulary words per cell of a step, so that few cells of a step update the same row."""
SHUFFLED, BLOCKS, MIXED = 1, 2, 3
"""Numbers of the random orders of cells, of blocks, and of the blocks of a mixture."""
COUNTING = 1 / 3
"""Largest fraction of a time budget in which GloVe counts pairs; the rest of the corpus is then left out."""


@dataclass(kw_only=True)
class Totals:
    """Totals of a process in a round: the sum of `count` measured losses, and the number of words read."""

    loss: float = 0.0
    count: float = 0.0
    words: int = 0

    def __add__(self, other: Totals) -> Totals:
        """Return the sum of both."""
        return Totals(loss=self.loss + other.loss, count=self.count + other.count, words=self.words + other.words)


@dataclass(frozen=True, kw_only=True)
class VectorLearner:
    """Learns tables in rounds. It is pickled for each process before any data is read.

    `specials`: ids of pieces that are not words and get no vectors. `folder`: for files of the learner.
    """

    tables: ClassVar[int]
    """Number of tables (V, columns)."""

    corpus: Corpus
    specials: tuple[int, ...]
    folder: Path
    settings: MethodSettings
    clock: LearningClock | None = None
    """The time budget, in place of a number of epochs."""

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of occurrences of each word, (V,); 0 for special pieces."""
        counts = np.array(self.corpus.counts)
        counts[list(self.specials)] = 0
        return counts

    @cached_property
    def blocks(self) -> list[ShardBlock]:
        """The blocks of the corpus; of a mixture those of its first epoch, in which each part has its share."""
        return self.blocks_of(0) if self.corpus.mixed else self.corpus.blocks(BLOCK)

    @cached_property
    def _mixture(self) -> BlockOrder:
        # Shares are counted in whole blocks, of which there must be many.
        return BlockOrder.of(self.corpus, self.corpus.blocks(max(1, min(BLOCK, self.corpus.tokens // PARTS))))

    def blocks_of(self, epoch: int) -> list[ShardBlock]:
        """Return the blocks of an epoch: of a mixture, a large part goes on where the epoch before stopped."""
        if not self.corpus.mixed:
            return self.blocks
        return self._mixture.epoch(epoch, lambda *key: np.random.default_rng([self.settings.seed, MIXED, *key]))

    def shuffle_blocks(self, epoch: int) -> Sequence[int]:
        """Return the numbers of the blocks in the random order of an epoch."""
        rng = np.random.default_rng([self.settings.seed, BLOCKS, epoch])
        order: list[int] = rng.permutation(len(self.blocks)).tolist()
        return order

    def words(self, block: ShardBlock) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """Return the ids (n,) of a block's words, without specials, and the index of each one's document."""
        documents = self.corpus.read(block)
        # Pieces per document, from the piece at which each document starts.
        texts = np.repeat(np.arange(len(documents)), np.diff(documents.sentences[documents.starts]))
        known = self.counts[documents.ids] > 0
        return documents.ids[known].astype(np.int64), texts[known]


@dataclass(frozen=True, kw_only=True)
class Word2VecLearner(VectorLearner):
    """word2vec in rounds of ROUND blocks. The learning rate falls linearly from block to block."""

    tables: ClassVar[int] = 2
    settings: Word2VecSettings

    @property
    def columns(self) -> int:
        """The numbers in a row."""
        return self.settings.width

    @property
    def rounds(self) -> int:
        """The number of rounds, over all epochs."""
        return self.settings.epochs * self._in_epoch

    @property
    def _in_epoch(self) -> int:
        return max(1, -(-len(self.blocks) // ROUND))

    def prepare(self) -> str:
        """Do nothing, and have nothing to remark: word2vec needs no preparation."""
        return ""

    def fresh(self) -> list[Tensor]:
        """Return the initial tables: input and output vectors, (V, D) each."""
        generator = torch.Generator().manual_seed(self.settings.seed)
        vectors = word2vec.Vectors.fresh(len(self.counts), self.columns, generator)
        return [vectors.inputs, vectors.outputs]

    def vectors(self, tables: Tensor) -> Tensor:
        """Return the learnt vectors (V, D): the input vectors."""
        return tables[0].clone()

    def learn(self, tables: Tensor, number: int, part: int, parts: int) -> Totals:
        """Update the tables from part `part` of `parts` of round `number`."""
        epoch, inside = divmod(number, self._in_epoch)
        totals, blocks, order = Totals(), self.blocks_of(epoch), self._order(epoch)
        # Process `part` takes every `parts`-th block of the round.
        for index in range(inside * ROUND + part, min((inside + 1) * ROUND, len(blocks)), parts):
            if self.clock and self.clock.over and totals.words:
                break
            planned = (epoch * len(blocks) + index) / (self.settings.epochs * len(blocks))
            done = self.clock.passed if self.clock else planned
            rate = self.settings.learning_rate * max(LOWEST_RATE, 1 - done)
            # Random numbers depend on epoch and block, not on the process that reads the block.
            rng = np.random.default_rng([self.settings.seed, epoch, order[index]])
            totals += self._learn_block(tables, blocks[order[index]], rate, rng)
        return totals

    def _order(self, epoch: int) -> Sequence[int]:
        # The time may end an epoch early, and the beginning of a corpus may be of one kind of text.
        return range(len(self.blocks)) if self.clock is None else self.shuffle_blocks(epoch)

    @cached_property
    def _keep(self) -> NDArray[np.float64]:
        return word2vec.keep_rates(self.counts, self.settings.sample)

    @cached_property
    def _noise(self) -> NDArray[np.float64]:
        return word2vec.noise_bounds(self.counts)

    @cached_property
    def _pace(self) -> tuple[int, float]:
        """The rows in a step and the factor of the learning rate, by the most frequent word (`word2vec.pace`)."""
        # Expected updates of the most frequent row in a step: many at once on the same row would overshoot.
        settings, expected_counts = self.settings, self.counts * self._keep
        top_frequency = max(expected_counts.max() / expected_counts.sum(), np.diff(self._noise, prepend=0).max())
        predictions = 1 if settings.method == "cbow" else settings.window + 1
        return word2vec.pace(
            settings.learning_rate * word2vec.ROW * predictions * (settings.negative + 1) * top_frequency
        )

    def _learn_block(self, tables: Tensor, block: ShardBlock, rate: float, rng: np.random.Generator) -> Totals:
        settings, centred = self.settings, self.settings.method == "cbow"
        vectors = word2vec.Vectors(inputs=tables[0], outputs=tables[1])
        ids, texts = self.words(block)
        totals = Totals(words=len(ids))
        # Subsampling of frequent words (Mikolov et al. 2013, section 2.3).
        keep_mask = rng.random(len(ids)) < self._keep[ids]
        learn = word2vec.cbow if centred else word2vec.skip_gram
        group, factor = self._pace
        steps = word2vec.steps(
            ids[keep_mask], texts[keep_mask], window=settings.window, centred=centred, rng=rng, group=group
        )
        most = -(-len(ids) // (word2vec.ROW * group))
        # Noise words for all steps, by inverse transform sampling: binary search in the cumulative distribution.
        drawn = rng.random((most, word2vec.NEGATIVES))
        noise = torch.from_numpy(np.searchsorted(self._noise, drawn, side="right"))
        for index, step in enumerate(steps):
            if index % LOOK == 0:
                loss_and_count = word2vec.loss(vectors, step, noise[index], negative=settings.negative, centred=centred)
                totals += Totals(loss=loss_and_count[0], count=loss_and_count[1])
            learn(vectors, step, noise[index], negative=settings.negative, rate=rate * factor)
        return totals


@dataclass(frozen=True, kw_only=True)
class GloveLearner(VectorLearner):
    """GloVe on the cells of the co-occurrence counts, shuffled in files. A round is an epoch."""

    tables: ClassVar[int] = 4
    settings: GloveSettings

    @property
    def columns(self) -> int:
        """The numbers in a row: a vector and its bias."""
        return self.settings.width + 1

    @property
    def rounds(self) -> int:
        """The number of rounds: one per epoch."""
        return self.settings.epochs

    def prepare(self) -> str:
        """Count the pairs and write the cells in random order, unless an earlier call has.

        With a time budget the blocks are counted in random order, as many as COUNTING of it allows, at least one. If
        some are left out, the result says so; otherwise it is "".
        """
        if self._file("counts").exists():  # the last one to be written
            return ""
        pair_counts = PairCounts(words=len(self.counts), window=self.settings.window, folder=self.folder)
        read = 0
        for number in self._choose_blocks():
            ids, texts = self.words(self.blocks[number])
            pair_counts.add(ids, texts)
            read += len(ids)
        np.save(self._file("words"), read)
        rng = np.random.default_rng([self.settings.seed, SHUFFLED])
        write_shuffled(pair_counts.blocks(), self.folder, heaps=1 + pair_counts.cells // pair_counts.most, rng=rng)
        pair_counts.delete()
        known = int(self.counts.sum())
        return f"The time sufficed to count {read:,} of {known:,} words." if self.clock and read < known else ""

    def _choose_blocks(self) -> Iterator[int]:
        if self.clock is None:
            yield from range(len(self.blocks))
            return
        first, *others = self.shuffle_blocks(0)
        yield first
        for number in others:
            if self.clock.passed > COUNTING:
                return
            yield number

    def fresh(self) -> list[Tensor]:
        """Return the initial tables: words, contexts, and AdaGrad's sums of squares for both."""
        generator = torch.Generator().manual_seed(self.settings.seed)
        tables = glove.GloveTables.fresh(len(self.counts), self.settings.width, generator)
        return [tables.words, tables.contexts, tables.word_squares, tables.context_squares]

    def vectors(self, tables: Tensor) -> Tensor:
        """Return the sums (V, D) of word and context vectors (Pennington et al. 2014, section 4.2)."""
        return (tables[0] + tables[1])[:, : self.settings.width].clone()

    def learn(self, tables: Tensor, number: int, part: int, parts: int) -> Totals:
        """Update the tables from part `part` of `parts` of the cells."""
        columns = [np.load(self._file(name), mmap_mode="r") for name in ("rows", "columns", "counts")]
        bounds = np.linspace(0, len(columns[0]), parts + 1).astype(np.int64)[part : part + 2]
        names, totals = ("words", "contexts", "word_squares", "context_squares"), Totals()
        learnt = glove.GloveTables(**dict(zip(names, tables)))
        settings = self.settings
        # Cells are shuffled, so a step of consecutive cells is a random sample.
        cells = min(CELLS, max(1, len(self.counts) // SPREAD))
        for start in range(bounds[0], bounds[1], cells):
            if self.clock and self.clock.over and totals.count:
                break
            rows, others, counts = (
                torch.from_numpy(np.array(column[start : min(start + cells, bounds[1])])) for column in columns
            )
            loss = glove.learn_cells(
                learnt, (rows.long(), others.long(), counts),
                largest=settings.largest, exponent=settings.exponent, rate=settings.learning_rate,
            )  # fmt: skip
            totals += Totals(loss=loss, count=len(rows))
        # A pass over all cells counts as one over the words that were counted.
        totals.words = int(np.load(self._file("words")) * totals.count / max(1, len(columns[0])))
        return totals

    def _file(self, name: str) -> Path:
        return self.folder / f"pairs-{name}.npy"


AnyLearner = Word2VecLearner | GloveLearner


def learner_for(
    settings: MethodSettings,
    *,
    corpus: Corpus,
    specials: tuple[int, ...],
    folder: Path,
    clock: LearningClock | None = None,
) -> AnyLearner:
    """Return the learner for these settings."""
    kind = Word2VecLearner if isinstance(settings, Word2VecSettings) else GloveLearner
    return kind(settings=settings, corpus=corpus, specials=specials, folder=folder, clock=clock)  # type: ignore[arg-type]
