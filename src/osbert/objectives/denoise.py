"""Denoising: a decoder writes a whole text, of which the encoder reads a noisy form (BART, Lewis et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.corrupt import word_bounds
from osbert.data.example import Booleans, Example
from osbert.data.pack import Packer
from osbert.data.ragged import Places, begins, ranges
from osbert.data.sequences import Sequences
from osbert.data.written import written
from osbert.objectives.contract import WritingObjective
from osbert.text.document import Document

if TYPE_CHECKING:
    from osbert.models.contract import Sizes

NOISES = ("infilling", "masking", "deletion", "permutation", "rotation")


class Fate(IntEnum):
    """What becomes of words."""

    KEPT = 0
    MASKED = 1
    DELETED = 2
    INFILLED = 3


@dataclass(frozen=True, kw_only=True)
class Denoise(WritingObjective):
    """The source is a text with the five noises of section 2.2, and the decoder writes the text as it was.

    First sentences change places; then words are infilled, masked or deleted, none of them twice; last, a text may be
    rotated. Special pieces stay what they are. The usual settings are those of the published models (section 5:
    30% infilled, and all sentences permuted).
    """

    title: ClassVar[str] = "denoising"

    infilling: float = 0.3
    """Share of a text's words that spans cover; one mask stands for each span, however long it is."""
    span: float = 3.0
    """Mean number of words in such a span, which has a Poisson distribution: for a span of none a mask is put in."""
    masking: float = 0.0
    """Share of a text's words each piece of which is masked."""
    deletion: float = 0.0
    """Share of a text's words that are left out."""
    permutation: float = 1.0
    """Share of a text's sentences that change places."""
    rotation: float = 0.0
    """Share of the texts that begin at a random piece and end with what was before it."""
    random: float = 0.0
    """Share of the masks in whose place a random piece stands."""

    def __post_init__(self) -> None:
        """Refuse shares that are none, more noise than there are words, and spans of nothing."""
        for name in (*NOISES, "random"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")
        if self.infilling + self.masking + self.deletion > 1 + 1e-9:
            raise ValueError(
                "infilling, masking and deletion are shares of the same words, at most 1 together, not "
                f"{self.infilling} + {self.masking} + {self.deletion}"
            )
        if not 1 <= self.span < math.inf:
            raise ValueError(f"span is the mean number of words in a span, at least 1, not {self.span}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return full spans of the documents, with the places where their sentences start."""
        return replace(packer.spans(documents, rng), with_sentences=True)

    @classmethod
    def lays_out(cls) -> bool:
        """Return False: its sequences are those of every objective without some of its own."""
        return False

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the noisy text as the source, and the text as what is to be written."""
        form = packer.form
        first, last = len(form.before), len(example) - len(form.after)
        starts = np.zeros(last - first, np.bool_) if example.sentences is None else example.sentences[first:last]
        text = replace(example, sentences=None)
        moved = first + permuted(starts, self.permutation, rng)
        ids, special = self._infilled(text, moved, packer, rng)
        turn = int(rng.random() * len(ids)) if rng.random() < self.rotation else 0
        ids, special = np.roll(ids, -turn), np.roll(special, -turn)
        special = np.concatenate([example.special[:first], special, example.special[last:]])
        source = replace(
            text,
            ids=np.concatenate([example.ids[:first], ids, example.ids[last:]]),
            special=special,
            words=~special,
            segments=np.zeros(len(special), np.int8),
            truncated=0,
        )
        return written(source, text, packer.tokenizer, name=self.name)

    def _infilled(
        self, text: Example, places: Places, packer: Packer, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], Booleans]:
        """Return the pieces (n,) at some places of a text, infilled, masked and deleted, and which are special (n,)."""
        ids, special = text.ids[places].astype(np.int64), text.special[places]
        firsts, ends = word_bounds(text.words[places], special)
        fates, sizes = self.fates(len(firsts), rng)
        before = begins(sizes)  # the word at which each begins
        pieces = ranges(firsts, ends - firsts)
        fate = np.repeat(np.repeat(fates, sizes), ends - firsts)
        hidden, gone = np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.bool_)
        hidden[pieces[fate == Fate.MASKED]] = True
        gone[pieces[fate >= Fate.DELETED]] = True
        heads = firsts[before[(fates == Fate.INFILLED) & (sizes > 0)]]
        hidden[heads], gone[heads] = True, False
        added = np.append(firsts, len(ids))[before[(fates == Fate.INFILLED) & (sizes == 0)]]
        room = packer.room(1) - int((~gone).sum())  # masks without a word may be more than the words that are gone
        added = added[: max(room, 0)]
        hidden, gone, special = (
            np.insert(one, added, new) for one, new in ((hidden, True), (gone, False), (special, False))
        )
        ids = np.where(hidden, packer.tokenizer.mask, np.insert(ids, added, packer.tokenizer.mask))
        others = np.flatnonzero(hidden & (rng.random(len(ids)) < self.random))
        ids[others] = rng.integers(len(packer.tokenizer), size=len(others))
        return ids[~gone], special[~gone]

    def fates(self, words: int, rng: np.random.Generator) -> tuple[Places, Places]:
        """Return what becomes of so many words, from the first to the last: fates (K,), and how many each is for (K,).

        Spans are as many as the share of infilling asks for, and anything may stand anywhere: every order of what is
        kept, masked, deleted and infilled is as likely as any other. In the authors' code spans may overlap, so that
        they cover less than was asked for.
        """
        masked = math.ceil(words * self.masking)
        deleted = min(math.ceil(words * self.deletion), words - masked)
        spans = span_lengths(min(math.ceil(words * self.infilling), words - masked - deleted), self.span, rng)
        kept = words - masked - deleted - int(spans.sum())
        fates = np.repeat([*Fate], [kept, masked, deleted, len(spans)])
        sizes = np.concatenate([np.ones(kept + masked + deleted, np.int64), spans])
        order = rng.permutation(len(fates))
        return fates[order], sizes[order]

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield that there must be a decoder, and that it must read texts, too.

        By that it is known, wherever the model writes, that its texts begin with the pieces that stand before a text.
        """
        yield from super().objections(architecture)
        if architecture.has_decoder and getattr(architecture, "reading", "both") != "both":
            yield (
                f"{self.name} teaches the decoder texts in the form in which they are read, and model.reading = "
                'encoder says that it reads none. Set model.reading = "both" and model.summary = "last".'
            )

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield how long the sources are beside the texts."""
        read = sum(len(example.source or ()) for example in examples)
        rate = read / max(sum(map(len, examples)), 1)
        told = ", ".join(f"{name} {getattr(self, name):.0%}" for name in NOISES if getattr(self, name))
        yield "tokens to read for each that is written", f"{rate:.1%}", told


def permuted(starts: Booleans, share: float, rng: np.random.Generator) -> Places:
    """Return where the tokens (n,) stand that follow one another once a share of the sentences has changed places.

    `starts` (n,): where sentences start; the first token starts one anyway.

    >>> starts = np.array([True, False, True, False, False])
    >>> permuted(starts, 1.0, np.random.default_rng(2)).tolist()
    [2, 3, 4, 0, 1]
    """
    firsts = np.union1d([0], np.flatnonzero(starts)) if len(starts) else np.zeros(0, np.int64)
    sizes, order = np.diff(firsts, append=len(starts)), np.arange(len(firsts))
    chosen = rng.permutation(len(firsts))[: math.ceil(share * len(firsts))]
    order[chosen] = rng.permutation(chosen)
    return ranges(firsts[order], sizes[order])


def span_lengths(total: int, mean: float, rng: np.random.Generator) -> Places:
    """Return lengths from a Poisson distribution whose sum is `total`: as many as reach it, the last one trimmed.

    >>> span_lengths(9, 3.0, np.random.default_rng(0)).tolist()
    [2, 0, 7]
    """
    found = np.zeros(0, np.int64)
    while found.sum() < total:
        found = np.concatenate([found, rng.poisson(mean, total)])
    ends = np.cumsum(found)
    count = int(np.searchsorted(ends, total)) + 1 if total else 0
    found = found[:count]
    found[-1:] -= ends[count - 1 : count] - total
    return found
