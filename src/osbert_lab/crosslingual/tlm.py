"""Translation language modelling: masks in a text and in its translation, read together (XLM, Lample and Conneau)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from osbert.data.example import Example, Places, begins, ranges
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer, trim_lengths
from osbert.data.sequences import Sequences
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.document import Document
from osbert_lab.crosslingual.sentence_pairs import SENTENCES, find_pairs

if TYPE_CHECKING:
    from osbert.models.contract import Sizes

FIRST, SECOND = 0, 1
"""The languages of a pair, which are the segments of its texts."""


@dataclass(frozen=True, kw_only=True)
class TranslationLanguage(MaskedLanguage):
    """A document is a sentence and its translation. Both are one sequence, and pieces of both are masked.

    Lample and Conneau 2019, section 3.3: a masked piece can be predicted from its own text or from the translation,
    which aligns the two languages. Positions begin anew in the second text, and each token has the embedding of its
    language: the segments of the model, 0 for the first sentence of every document and 1 for the second. Some
    documents are two sequences instead, a language each: masked language modelling, with which the paper alternates.
    """

    document_sentences: ClassVar[int] = SENTENCES
    title: ClassVar[str] = "translation language modelling"

    single: float = 0.5
    """Fraction of the documents whose texts are read each by itself, anew in each epoch."""
    reset_positions: bool = True
    """Whether the pieces of the second text have the positions that they have in a sequence of their own."""
    language_embeddings: bool = True
    """Whether the segments are the languages. Later uses read every text in the segment of the first language; without
    (as in XLM's models of 17 and 100 languages) all tokens have segment 0."""

    def __post_init__(self) -> None:
        """Raise ValueError for a fraction out of range."""
        super().__post_init__()
        if not 0 <= self.single <= 1:
            raise ValueError(f"single must be a fraction from 0 to 1, not {self.single}")

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return one sequence or two for each whole document of two sentences, with the languages as segments."""
        joined, bounds = find_pairs(documents)
        full = np.diff(bounds)
        bounds, full = bounds[full.all(axis=1)], full[full.all(axis=1)]
        alone = rng.random(len(full)) < self.single
        trimmed = np.stack(trim_lengths(full[:, FIRST], full[:, SECOND], packer.room(2)), axis=1)
        sizes = np.where(alone[:, None], np.minimum(full, packer.room(1)), trimmed)
        counts = np.repeat(np.where(alone, 1, 2), np.where(alone, 2, 1))
        # The pieces that a text has lost, added up over the texts of a sequence.
        truncated = np.add.reduceat((full - sizes).ravel(), begins(counts)) if len(counts) else counts
        return Sequences(
            documents=joined,
            tokenizer=packer.tokenizer,
            firsts=bounds[:, :2].ravel(),
            sizes=sizes.ravel(),
            segments=np.tile(np.array([FIRST, SECOND], np.int8), len(sizes)),
            counts=counts,
            truncated=truncated,
        )

    def corrupt_all(self, examples: Examples, packer: Packer, noise: Noise) -> Examples:
        """Return examples with masks in both texts, and the positions of the second text counted anew."""
        masked = super().corrupt_all(examples, packer, noise)
        positions = second_positions(examples, len(packer.form.before)) if self.reset_positions else None
        segments = masked.segments if self.language_embeddings else np.zeros_like(masked.segments)
        return replace(masked, positions=positions, segments=segments)

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield a message if the model has no embedding for the second language."""
        yield from super().objections(architecture)
        if self.language_embeddings and architecture.segments < 2:
            yield (
                f"{self.name} marks the language of each token by its segment, but model.segments = "
                f"{architecture.segments}. Set model.segments = 2, or {self.name}.language_embeddings = false."
            )

    def rates(self, examples: Sequence[Example]) -> Iterator[tuple[str, str, str]]:
        """Yield the rates of masks, and the fraction of sequences with both languages."""
        yield from super().rates(examples)
        both = sum(len(np.unique(example.segments)) > 1 for example in examples)
        # A document is one sequence with both texts, or two with one each.
        expected = (1 - self.single) / (1 + self.single)
        if self.language_embeddings:
            yield "sequences in both languages", f"{both / max(1, len(examples)):.2%}", f"{expected:.2%}"


def second_positions(examples: Examples, before: int) -> Places:
    """Return the position of each token (N,): from the first piece of a second text on, counted as in a text alone.

    `before`: the special pieces before a text, whose positions come first.
    """
    positions = ranges(np.zeros_like(examples.lengths), examples.lengths)
    owners = np.repeat(np.arange(len(examples)), examples.lengths)
    second = examples.segments == SECOND
    # Where the second text of a pair begins, as a position; 0 for a sequence of one text.
    starts = np.zeros(len(examples), np.int64)
    changes = np.flatnonzero(second[1:] & ~second[:-1] & (owners[1:] == owners[:-1])) + 1
    starts[owners[changes]] = positions[changes]
    moved = np.where(starts > 0, starts - before, 0)
    return positions - np.where(second, moved[owners], 0)
