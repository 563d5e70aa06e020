"""Streams: a corpus as contiguous columns of text, so that each sequence goes on where one of the step before ended.

Transformer-XL (Dai et al. 2019, section 3.2): the documents stand one after the other, with the tokenizer's end piece
before each; the text is cut into as many columns as a step has sequences, and step t is the t-th run of each column.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from osbert.corpus.shards import Corpus, ShardBlock
from osbert.data.example import Booleans, Example, Integers
from osbert.data.examples import COLUMNS, Examples
from osbert.data.loader import Chosen, Draw, LoaderObjective, LoaderSettings, PretrainingLoader, Purpose
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.data.ragged import Places, ranges
from osbert.data.step import Cursor, Step
from osbert.errors import UserError

if TYPE_CHECKING:
    from osbert.data.batch import Batch

CACHED = 256
"""Blocks of the corpus that are kept in memory, or two a column where that is more."""


class StreamText:
    """Blocks of a corpus as one text, cut into `columns` columns, of which a step has `length` tokens each.

    `lookahead`, where it is a parameter: tokens behind a sequence that are read with it; the next begins with them.
    """

    def __init__(
        self, corpus: Corpus, blocks: Sequence[ShardBlock], between: Sequence[int], *, columns: int, length: int
    ) -> None:
        """Measure the text; nothing of it is kept."""
        self.corpus = corpus
        self.blocks = blocks
        self.between = between
        self.columns = columns
        self.length = length
        outlines = (corpus.outline(block) for block in blocks)
        self.ends: Places = np.cumsum([pieces + len(between) * len(begins) for pieces, begins in outlines])
        self._cache: dict[int, tuple[Integers, Booleans, Booleans]] = {}

    def __len__(self) -> int:
        """Return how many tokens the text has."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def steps(self, lookahead: int) -> int:
        """Return how many whole steps an epoch has; what is left of each column is not read."""
        return max(0, len(self) - lookahead) // self.columns // self.length

    def take(self, step: int, columns: Places, lookahead: int) -> Examples:
        """Return the sequences of some columns (B,) at a step of the epoch, each with the tokens behind it."""
        size = (len(self) - lookahead) // self.columns
        parts = [self._span(int(column) * size + step * self.length, self.length + lookahead) for column in columns]
        ids, words, special = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Examples(
            ids=ids.astype(np.int64),
            segments=np.zeros(len(ids), np.int8),
            words=words,
            special=special,
            lengths=np.full(len(columns), self.length + lookahead),
            records=np.zeros(len(columns), np.int64),
            truncated=np.zeros(len(columns), np.int64),
        )

    def _span(self, first: int, count: int) -> tuple[Integers, Booleans, Booleans]:
        """Return `count` tokens from `first` on: pieces, word starts and specials."""
        parts = []
        while count:
            number = int(np.searchsorted(self.ends, first, side="right"))
            start = int(self.ends[number - 1]) if number else 0
            columns = self._block(number)
            part = slice(first - start, min(first - start + count, len(columns[0])))
            parts.append([column[part] for column in columns])
            first, count = first + part.stop - part.start, count - (part.stop - part.start)
        ids, words, special = (np.concatenate(part) for part in zip(*parts, strict=True))
        return ids, words, special

    def _block(self, number: int) -> tuple[Integers, Booleans, Booleans]:
        """Return the tokens of a block, an end piece before each document that begins in it."""
        if number not in self._cache:
            block = self.blocks[number]
            documents, (_, begins) = self.corpus.read(block), self.corpus.outline(block)
            places = np.repeat(begins, len(self.between))
            ids = np.insert(documents.ids, places, np.tile(self.between, len(begins)))
            words = np.insert(documents.words, places, False)
            special = np.insert(np.zeros(len(documents.ids), np.bool_), places, True)
            while len(self._cache) >= max(CACHED, 2 * self.columns):
                del self._cache[next(iter(self._cache))]
            self._cache[number] = ids, words, special
        return self._cache[number]


@dataclass(frozen=True, kw_only=True)
class StreamDraw(Draw):
    """A step that is not made yet: step `number` of the run's stream, and where the next one begins."""

    parts: Sequence[Chosen] = ()
    number: int


class StreamLoader(PretrainingLoader):
    """An endless stream of steps in which sequence r goes on where sequence r - batch ended, by `Batch.records`.

    A cursor's `index`, the number of the step, is all that a run remembers. A process of a group has the columns of its
    rank. Records leave out a step where an epoch begins, so that no sequence there has one before it. Nothing is
    shuffled; of the settings `pool`, `duplicates` and those of how sequences are packed change nothing.
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
        """Divide the corpus and measure its streams. Raises UserError also where it is too short for a step of them."""
        super().__init__(corpus, objectives, packer, settings, run_steps=run_steps)
        self.stream = self._stream(self.training, settings.batch)

    @cached_property
    def lookahead(self) -> int:
        """How many tokens behind a sequence its labels are of."""
        return max(objective.lookahead for objective in self.objectives.values())

    @cached_property
    def _held_stream(self) -> StreamText:
        blocks = self._stream(self.held, 1)  # in fewer columns where the text is short
        columns = min(self.settings.batch, blocks.steps(self.lookahead))
        return self._stream(self.held, columns)

    def draws(self, cursor: Cursor) -> Iterator[StreamDraw]:
        """Yield the steps from `cursor` on."""
        for taken, number in enumerate(itertools.count(cursor.index)):
            yield StreamDraw(number=number, cursor=Cursor(index=number + 1, step=cursor.step + taken + 1))

    def make(self, draws: Sequence[StreamDraw]) -> list[Step]:  # type: ignore[override]
        """Return this process's columns of some steps as micro-batches."""
        own = np.arange(self.share.rank, self.settings.batch, self.share.size)
        return [Step(batches=self._passes(self._at(draw, own)), cursor=draw.cursor) for draw in draws]

    def examples(self, cursor: Cursor) -> Iterator[Example]:
        """Yield the corrupted examples from `cursor` on, without end."""
        for draw in self.draws(cursor):
            yield from self._at(draw, np.arange(self.settings.batch))

    def held_out(self) -> list[Batch]:
        """Return the batches kept out of training, in the order in which they continue each other."""
        if not self.held:
            return []
        stream, found = self._held_stream, []
        columns = np.arange(self.share.rank, stream.columns, self.share.size)
        for step in range(stream.steps(self.lookahead)):
            draw = StreamDraw(number=step, cursor=Cursor())
            key = self._key(Purpose.HELD_OUT, 1, step)
            found += self._passes(self._taken(stream, draw, step, columns, key)) if len(columns) else []
        return found

    def _at(self, draw: StreamDraw, columns: Places) -> Examples:
        """Return the examples of some columns at a step of the run."""
        epoch, step = divmod(draw.number, self.stream.steps(self.lookahead))
        key = self._key(Purpose.NOISE, epoch, step)
        found = self._taken(self.stream, draw, step, columns, key)
        return replace(found, records=found.records + epoch * self.settings.batch)

    def _taken(self, stream: StreamText, draw: StreamDraw, step: int, columns: Places, key: int) -> Examples:
        """Return the examples of some columns at a step of a stream, with noise of a key and the labels."""
        examples, noise = stream.take(step, columns, self.lookahead), Noise.at(key, columns)
        for number, objective in enumerate(self._objectives_at(draw).values()):
            examples = objective.corrupt_all(examples, self.packer, noise.stream(number))
        return replace(cut(examples, self.lookahead), records=draw.number * self.settings.batch + columns)

    def _passes(self, examples: Examples) -> list[Batch]:
        from osbert.data.batch import micro_batches  # loads torch, which the settings do not need

        whole = any(objective.whole for objective in self.objectives.values())
        batches = micro_batches(examples, 0 if whole else self.settings.micro_tokens)
        return [replace(batch, whole=whole) for batch in batches]

    def _stream(self, blocks: Sequence[ShardBlock], columns: int) -> StreamText:
        form, length = self.packer.form, self.packer.length
        stream = StreamText(self.corpus, blocks, form.between, columns=columns, length=length)
        if not stream.steps(self.lookahead):
            raise UserError(
                f"The corpus in {self.corpus.folder} has {len(stream):,} tokens here, too few for {columns:,} streams "
                f"(data.batch) of sequences of {length:,} (data.length). Give a smaller batch, or use more text.",
                code="too-little-data",
            )
        return stream


def cut(examples: Examples, count: int) -> Examples:
    """Return examples of equal length without the last `count` tokens of each, which must have no labels."""
    if not count:
        return examples
    length = int(examples.lengths[0]) - count
    kept = ranges(examples.starts, examples.lengths - count)
    columns: dict[str, Any] = {
        name: None if (column := getattr(examples, name)) is None else column[kept] for name in COLUMNS
    }
    targets = {
        name: target
        if target.index is None
        else replace(target, index=target.index - target.index // (length + count) * count)
        for name, target in examples.targets.items()
    }
    return replace(examples, **columns, lengths=examples.lengths - count, targets=targets)
