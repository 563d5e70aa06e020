"""Streams: a corpus as contiguous columns of text, so that each sequence continues one of the previous step.

Dai et al. (2019, section 3.2): the documents are concatenated, with the tokenizer's end piece before
each. The text is cut into as many columns as a step has sequences; step t is the t-th run of each column.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from osbert.corpus.shards import Corpus, ShardBlock
from osbert.data.example import Booleans, Example, Integers, Places, ranges
from osbert.data.examples import COLUMNS, Examples
from osbert.data.loader import Chosen, Draw, LoaderObjective, LoaderSettings, PretrainingLoader, Purpose
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.data.step import Cursor, Step
from osbert.errors import UserError

if TYPE_CHECKING:
    from osbert.data.batch import Batch

CACHED = 256
"""Blocks of the corpus that are cached, or two per column if that is more."""


class StreamText:
    """Blocks of a corpus as one text in `columns` columns; a step takes `length` tokens of each.

    The parameter `lookahead` is the number of tokens read beyond a sequence; the next sequence begins with them.
    """

    def __init__(
        self, corpus: Corpus, blocks: Sequence[ShardBlock], between: Sequence[int], *, columns: int, length: int
    ) -> None:
        """Measure the text. Blocks are read when they are needed."""
        self.corpus = corpus
        self.blocks = blocks
        self.between = between
        self.columns = columns
        self.length = length
        outlines = (corpus.outline(block) for block in blocks)
        self.ends: Places = np.cumsum([pieces + len(between) * len(begins) for pieces, begins in outlines])
        self._cache: dict[int, tuple[Integers, Booleans, Booleans]] = {}

    def __len__(self) -> int:
        """Return the number of tokens, end pieces included."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def steps(self, lookahead: int) -> int:
        """Return the number of whole steps in an epoch. The remainder of each column is not used."""
        return max(0, len(self) - lookahead) // self.columns // self.length

    def take(self, step: int, columns: Places, lookahead: int) -> Examples:
        """Return the sequences of some columns (B,) at a step of the epoch, each with `lookahead` tokens more."""
        # Tokens of a column; the lookahead of the last column is reserved at the end of the text.
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
        """Return ids, word starts and special flags of `count` tokens from `first` on."""
        parts = []
        while count:
            # The block that holds token `first`: the first one that ends beyond it.
            number = int(np.searchsorted(self.ends, first, side="right"))
            start = int(self.ends[number - 1]) if number else 0
            columns = self._block(number)
            part = slice(first - start, min(first - start + count, len(columns[0])))
            parts.append([column[part] for column in columns])
            first, count = first + part.stop - part.start, count - (part.stop - part.start)
        ids, words, special = (np.concatenate(part) for part in zip(*parts, strict=True))
        return ids, words, special

    def _block(self, number: int) -> tuple[Integers, Booleans, Booleans]:
        """Return the tokens of a block, with an end piece before each document that begins in it."""
        if number not in self._cache:
            block = self.blocks[number]
            documents, (_, begins) = self.corpus.read(block), self.corpus.outline(block)
            # np.insert keeps the order of what goes to one index, so all end pieces precede the document.
            indices = np.repeat(begins, len(self.between))
            ids = np.insert(documents.ids, indices, np.tile(self.between, len(begins)))
            words = np.insert(documents.words, indices, False)
            special = np.insert(np.zeros(len(documents.ids), np.bool_), indices, True)
            # A dict keeps insertion order, so its first key is the oldest block. Each column is in one or two blocks
            # at a time.
            while len(self._cache) >= max(CACHED, 2 * self.columns):
                del self._cache[next(iter(self._cache))]
            self._cache[number] = ids, words, special
        return self._cache[number]


@dataclass(frozen=True, kw_only=True)
class StreamDraw(Draw):
    """A step that is not made yet: step `number` of the run's stream, and the cursor of the next one."""

    parts: Sequence[Chosen] = ()
    number: int


class StreamLoader(PretrainingLoader):
    """An endless stream of steps in which record r (`Batch.records`) continues record r - batch.

    A cursor's `index`, the number of the step, is enough to resume. Each process has the columns of its rank. Record
    numbers skip a step at the start of an epoch, so that the sequences there have no predecessor. Nothing is shuffled;
    the settings `pool`, `duplicates` and those for packing have no effect.
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
        """Divide the corpus and measure its streams. Raises UserError also if it is mixed, or too short for a step."""
        if corpus.mixed:
            raise UserError(
                f"{corpus.folder} is a mixture, whose parts are read in proportion to their weights, but streams "
                "read one text in its order. Use a single corpus, or a model without memory.",
                code="options-exclude-each-other",
            )
        super().__init__(corpus, objectives, packer, settings, run_steps=run_steps)
        self.stream = self._stream(self.training, settings.batch)

    @cached_property
    def lookahead(self) -> int:
        """Number of tokens beyond a sequence that its labels reach: the most of all objectives."""
        return max(objective.lookahead for objective in self.objectives.values())

    @cached_property
    def _held_stream(self) -> StreamText:
        blocks = self._stream(self.held, 1)  # in fewer columns where the text is short
        columns = min(self.settings.batch, blocks.steps(self.lookahead))
        return self._stream(self.held, columns)

    def draws(self, cursor: Cursor) -> Iterator[StreamDraw]:
        for taken, number in enumerate(itertools.count(cursor.index)):
            yield StreamDraw(number=number, cursor=Cursor(index=number + 1, step=cursor.step + taken + 1))

    def make(self, draws: Sequence[StreamDraw]) -> list[Step]:  # type: ignore[override]
        """Return some steps: the micro-batches of this process's columns."""
        columns = np.arange(self.rank_part.rank, self.settings.batch, self.rank_part.size)
        return [Step(batches=self._passes(self._at(draw, columns)), cursor=draw.cursor) for draw in draws]

    def examples(self, cursor: Cursor) -> Iterator[Example]:
        for draw in self.draws(cursor):
            yield from self._at(draw, np.arange(self.settings.batch))

    def make_held_out(self) -> list[Batch]:
        """Return this process's held-out batches, in the order in which they continue each other."""
        if not self.held:
            return []
        stream, batches = self._held_stream, []
        columns = np.arange(self.rank_part.rank, stream.columns, self.rank_part.size)
        for step in range(stream.steps(self.lookahead)):
            draw = StreamDraw(number=step, cursor=Cursor())
            key = self._key(Purpose.HELD_OUT, 1, step)
            batches += self._passes(self._take_examples(stream, draw, step, columns, key)) if len(columns) else []
        return batches

    def _at(self, draw: StreamDraw, columns: Places) -> Examples:
        """Return the corrupted examples of some columns at a step of the run, numbered by record."""
        epoch, step = divmod(draw.number, self.stream.steps(self.lookahead))
        key = self._key(Purpose.NOISE, epoch, step)
        examples = self._take_examples(self.stream, draw, step, columns, key)
        # One step's worth of record numbers per epoch is left out: nothing precedes the first step of an epoch.
        return replace(examples, records=examples.records + epoch * self.settings.batch)

    def _take_examples(self, stream: StreamText, draw: StreamDraw, step: int, columns: Places, key: int) -> Examples:
        """Return the examples of some columns at a step of a stream, corrupted with the noise of `key` and labelled."""
        examples, noise = stream.take(step, columns, self.lookahead), Noise.at(key, columns)
        for number, objective in enumerate(self._objectives_at(draw).values()):
            examples = objective.corrupt_all(examples, self.packer, noise.stream(number))
        return replace(cut(examples, self.lookahead), records=draw.number * self.settings.batch + columns)

    def _passes(self, examples: Examples) -> list[Batch]:
        from osbert.data.batch import micro_batches  # loads torch, which the settings do not need

        whole = any(objective.whole for objective in self.objectives.values())
        batches = micro_batches(examples, 0 if whole else self.settings.pass_tokens)
        return [replace(batch, whole=whole) for batch in batches]

    def _stream(self, blocks: Sequence[ShardBlock], columns: int) -> StreamText:
        form, length = self.packer.form, self.packer.length
        stream = StreamText(self.corpus, blocks, form.between, columns=columns, length=length)
        if not stream.steps(self.lookahead):
            raise UserError(
                f"The corpus in {self.corpus.folder} has {len(stream):,} tokens here, too few for {columns:,} "
                f"streams (data.batch) of sequences of {length:,} tokens (data.length). Use a smaller batch or "
                "more text.",
                code="too-little-data",
            )
        return stream


def cut(examples: Examples, count: int) -> Examples:
    """Drop the last `count` tokens of examples of equal length. These tokens must not be labelled."""
    if not count:
        return examples
    length = int(examples.lengths[0]) - count
    indices = ranges(examples.starts, examples.lengths - count)
    columns: dict[str, Any] = {
        name: None if (column := getattr(examples, name)) is None else column[indices] for name in COLUMNS
    }
    targets = {
        name: target
        if target.index is None
        # Each example before a label's own has lost `count` tokens.
        else replace(target, index=target.index - target.index // (length + count) * count)
        for name, target in examples.targets.items()
    }
    return replace(examples, **columns, lengths=examples.lengths - count, targets=targets)
