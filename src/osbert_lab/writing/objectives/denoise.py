"""Denoising: the source is a corrupted text, and the decoder generates the original (BART, Lewis et al. 2020)."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.corrupt import word_bounds
from osbert.data.example import Booleans, Example, Places, begins, ranges
from osbert.data.pack import Packer
from osbert.data.sequences import Sequences
from osbert.errors import UserError
from osbert.text.document import Document
from osbert.text.file_tokenizer import AnyTokenizer
from osbert_lab.writing.decoder_inputs import decoder_example
from osbert_lab.writing.objectives.contract import WritingObjective

if TYPE_CHECKING:
    from osbert.models.contract import Sizes

NOISES = ("infilling", "masking", "deletion", "permutation", "rotation")


class Fate(IntEnum):
    """What happens to a word, or to the words of a span."""

    KEPT = 0
    MASKED = 1
    DELETED = 2
    INFILLED = 3


@dataclass(frozen=True, kw_only=True)
class Denoise(WritingObjective):
    """Corrupts the source by the five noises of section 2.2; the target is the original text.

    Order: sentences are permuted; then words are infilled, masked or deleted, each word at most once; then the text
    may be rotated. Special pieces are never changed. The defaults are those of the published models (section 5: 30%
    infilled, all sentences permuted).
    """

    title: ClassVar[str] = "denoising"

    infilling: float = 0.3
    """Fraction of the words that spans cover. One mask replaces each span, whatever its length."""
    span: float = 3.0
    """Mean length of a span in words (Poisson distribution). For a span of length 0 a mask is inserted."""
    masking: float = 0.0
    """Fraction of the words whose pieces are all masked."""
    deletion: float = 0.0
    """Fraction of the words that are deleted."""
    permutation: float = 1.0
    """Fraction of the sentences that change places."""
    rotation: float = 0.0
    """Fraction of the texts that are rotated to begin at a random piece."""
    random: float = 0.0
    """Fraction of the masks that are replaced by a random piece."""
    languages: tuple[str, ...] = ()
    """Words that stand before the texts and name their languages (mBART, Liu et al. 2020, section 2), such as
    xxen,xxde; each must be one piece of the vocabulary. Noise leaves them as they are."""

    def __post_init__(self) -> None:
        """Raise ValueError for fractions out of range, noises that exceed all words, and a mean span below 1."""
        for name in (*NOISES, "random"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a fraction from 0 to 1, not {getattr(self, name)}")
        if self.infilling + self.masking + self.deletion > 1 + 1e-9:
            raise ValueError(
                "infilling, masking and deletion are fractions of the same words: their sum must be at most 1, "
                f"not {self.infilling} + {self.masking} + {self.deletion}"
            )
        if not 1 <= self.span < math.inf:
            raise ValueError(f"span is the mean number of words in a span and must be at least 1, not {self.span}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return full spans of the documents, with the positions at which sentences start.

        Raises UserError if a word that names a language is not one piece of the vocabulary.
        """
        language_pieces(self.languages, packer.tokenizer)
        return replace(packer.spans(documents, rng), with_sentences=True)

    @classmethod
    def lays_out(cls) -> bool:
        """Return False: apart from the sentence starts these are the sequences of any objective."""
        return False

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return an example whose source is the corrupted text and whose target is the original."""
        form = packer.form
        first, last = len(form.before), len(example) - len(form.after)
        if self.languages:
            marks = np.isin(example.ids, language_pieces(self.languages, packer.tokenizer))
            first += int(marks[first:last].argmin()) if not marks[first:last].all() else 0  # those at the beginning
            example = replace(example, special=example.special | marks)
        # Without sentence starts the whole text is one sentence, and permutation changes nothing.
        starts = np.zeros(last - first, np.bool_) if example.sentences is None else example.sentences[first:last]
        text = replace(example, sentences=None)
        # Only the text is permuted: the special pieces before `first` and from `last` on stay outside.
        moved = first + permute_sentences(starts, self.permutation, rng)
        ids, special = self._corrupt_pieces(text, moved, packer, rng)
        turn = int(rng.random() * len(ids)) if rng.random() < self.rotation else 0
        # np.roll moves to the right: -turn makes piece `turn` the first one.
        ids, special = np.roll(ids, -turn), np.roll(special, -turn)
        special = np.concatenate([example.special[:first], special, example.special[last:]])
        source = replace(
            text,
            ids=np.concatenate([example.ids[:first], ids, example.ids[last:]]),
            special=special,
            words=~special,
            # The source has another length than the text, so the columns of every token are made anew.
            segments=np.zeros(len(special), np.int8),
            truncated=0,
        )
        return decoder_example(source, text, packer.tokenizer, name=self.name)

    def _corrupt_pieces(
        self, text: Example, indices: Places, packer: Packer, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], Booleans]:
        """Corrupt the pieces at `indices` of a text; return their ids (n,) and which of them are special (n,)."""
        ids, special = text.ids[indices].astype(np.int64), text.special[indices]
        # All of a word's pieces have the same fate (whole-word noise).
        firsts, ends = word_bounds(text.words[indices], special)
        fates, sizes = self.fates(len(firsts), rng)
        before = begins(sizes)  # index of the word at which each fate begins
        # Indices of all pieces of all words, and below the fate of each: per fate -> per word -> per piece.
        pieces = ranges(firsts, ends - firsts)
        fate = np.repeat(np.repeat(fates, sizes), ends - firsts)
        hidden, gone = np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.bool_)
        hidden[pieces[fate == Fate.MASKED]] = True
        # DELETED or INFILLED: both remove the pieces; spans get their mask back below.
        gone[pieces[fate >= Fate.DELETED]] = True
        # The first piece of a span becomes its mask; the other pieces are gone. A span of no words inserts a mask.
        heads = firsts[before[(fates == Fate.INFILLED) & (sizes > 0)]]
        hidden[heads], gone[heads] = True, False
        # A span of length 0 at the end of the text has no next word: its mask goes after the last piece.
        added = np.append(firsts, len(ids))[before[(fates == Fate.INFILLED) & (sizes == 0)]]
        room = packer.room(1) - int((~gone).sum())  # inserted masks may outnumber the deleted pieces
        added = added[: max(room, 0)]
        # np.insert takes indices of the original array, so all columns stay aligned.
        hidden, gone, special = (
            np.insert(column, added, new) for column, new in ((hidden, True), (gone, False), (special, False))
        )
        ids = np.where(hidden, packer.tokenizer.mask, np.insert(ids, added, packer.tokenizer.mask))
        # A mask that becomes a random piece, as in BERT's noise.
        others = np.flatnonzero(hidden & (rng.random(len(ids)) < self.random))
        ids[others] = rng.integers(len(packer.tokenizer), size=len(others))
        return ids[~gone], special[~gone]

    def fates(self, words: int, rng: np.random.Generator) -> tuple[Places, Places]:
        """Return the fates (K,) of `words` words from left to right, and the number of words of each (K,).

        Every order of kept, masked, deleted and infilled runs is equally likely, and spans cover exactly the fraction
        that is set. In the authors' code spans may overlap, so that they cover less.
        """
        masked = math.ceil(words * self.masking)
        deleted = min(math.ceil(words * self.deletion), words - masked)
        # Masked and deleted words take precedence when rounding up would exceed the words of the text.
        spans = span_lengths(min(math.ceil(words * self.infilling), words - masked - deleted), self.span, rng)
        intact = words - masked - deleted - int(spans.sum())
        fates = np.repeat([*Fate], [intact, masked, deleted, len(spans)])
        # Kept, masked and deleted fates are one word each; an infilled one is a whole span.
        sizes = np.concatenate([np.ones(intact + masked + deleted, np.int64), spans])
        order = rng.permutation(len(fates))
        return fates[order], sizes[order]

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield a message if the model has no decoder, or if the decoder is not meant to read texts.

        model.reading = "both" also records that the texts which the decoder writes begin with [CLS] or the like.
        """
        yield from super().objections(architecture)
        if architecture.has_decoder and architecture.reading != "both":
            yield (
                f"{self.name} trains the decoder on texts in the form in which they are read, but model.reading = "
                'encoder excludes that. Set model.reading = "both" and model.summary = "last".'
            )

    def idle(self, sequences: Sequences) -> str:
        """Return a remark if most sequences do not begin with a word that names their language."""
        if not self.languages:
            return ""
        firsts = sequences.documents.ids[sequences.firsts[begins(sequences.counts)]]
        named = int(np.isin(firsts, language_pieces(self.languages, sequences.tokenizer)).sum())
        if 2 * named >= len(sequences):
            return ""
        return (
            f"{self.name}.languages: {named:,} of {len(sequences):,} sequences begin with one of these words. Write it "
            "before each line of its language and build the corpus again, or leave the setting out."
        )

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the length of the sources relative to the targets."""
        read = sum(len(example.source or ()) for example in examples)
        rate = read / max(sum(map(len, examples)), 1)
        settings = ", ".join(f"{name} {getattr(self, name):.0%}" for name in NOISES if getattr(self, name))
        yield "tokens to read for each that is written", f"{rate:.1%}", settings


@functools.lru_cache(maxsize=8)  # asked for each text
def language_pieces(words: tuple[str, ...], tokenizer: AnyTokenizer) -> Places:
    """Return the pieces of words that name languages. Raises UserError if one is not a single known piece."""
    encoded = [tokenizer.encode(word) for word in words]
    if several := [word for word, ids in zip(words, encoded) if len(ids) != 1 or ids[0] == tokenizer.unknown]:
        raise UserError(
            f"denoise.languages: {', '.join(several)} is not one piece of the vocabulary. Write the word before each "
            "text of its language, and train the vocabulary on these texts, or add it: osbert tokenizer extend.",
            code="invalid-setting",
        )
    return np.array([ids[0] for ids in encoded], np.int64)


def permute_sentences(starts: Booleans, fraction: float, rng: np.random.Generator) -> Places:
    """Return the order (n,) of tokens after a fraction of the sentences has been permuted among themselves.

    starts: whether a sentence starts at each token (n,); the first token always starts one.

    >>> starts = np.array([True, False, True, False, False])
    >>> permute_sentences(starts, 1.0, np.random.default_rng(2)).tolist()
    [2, 3, 4, 0, 1]
    """
    # union1d sorts, and adds 0 even if the text begins within a sentence.
    firsts = np.union1d([0], np.flatnonzero(starts)) if len(starts) else np.zeros(0, np.int64)
    sizes, order = np.diff(firsts, append=len(starts)), np.arange(len(firsts))
    chosen = rng.permutation(len(firsts))[: math.ceil(fraction * len(firsts))]
    # Only the chosen sentences change places, among themselves.
    order[chosen] = rng.permutation(chosen)
    return ranges(firsts[order], sizes[order])


def span_lengths(total: int, mean: float, rng: np.random.Generator) -> Places:
    """Return lengths from a Poisson distribution with the sum `total`; the last one is trimmed to fit.

    >>> span_lengths(9, 3.0, np.random.default_rng(0)).tolist()
    [2, 0, 7]
    """
    lengths = np.zeros(0, np.int64)
    while lengths.sum() < total:
        # `total` draws have a mean sum of total * mean >= total, so that one pass usually suffices.
        lengths = np.concatenate([lengths, rng.poisson(mean, total)])
    ends = np.cumsum(lengths)
    count = int(np.searchsorted(ends, total)) + 1 if total else 0
    lengths = lengths[:count]
    # Slices of length 1, not items: they also work if there are no lengths.
    lengths[-1:] -= ends[count - 1 : count] - total
    return lengths
