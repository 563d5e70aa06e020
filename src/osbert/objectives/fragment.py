"""Fragments: a decoder writes the part of a text that is masked in what the encoder reads (MASS, Song et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from osbert.data.example import Example, Target
from osbert.data.pack import Packer
from osbert.data.written import starting_piece
from osbert.objectives.contract import WritingObjective


@dataclass(frozen=True, kw_only=True)
class Fragment(WritingObjective):
    """Consecutive pieces of each text are masked in the source, and the decoder writes them and nothing else.

    It reads the piece before each, at the position that it has in the text (section 3.2). Before the first piece of a
    text it reads the piece that starts every written text (data/written.py), and after the last one it predicts the
    piece that ends a text, so that a pretrained model begins and ends texts as it has learnt. The source keeps all
    special pieces around the text; those between two documents may be in a fragment.
    """

    title: ClassVar[str] = "a missing fragment"

    share: float = 0.5
    """Share of a text's pieces that the fragment has; the authors found half of them best."""
    edges: float = 0.2
    """Share of the texts whose fragment is their beginning, and of those whose fragment is their end; in the others it
    may be anywhere. 0.2 is of the authors' code for translation; that for summaries has 0."""
    mask: float = 0.8
    """Share of the fragment's pieces that the source has a mask for."""
    random: float = 0.1
    """Share of them that the source has a random piece for; the others it has as they are."""

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        if not 0 < self.share <= 1:
            raise ValueError(f"share is a share above 0 and up to 1, not {self.share}")
        if not 0 <= self.edges <= 0.5:
            raise ValueError(f"edges is the share of texts for each of two ends, from 0 to 0.5, not {self.edges}")
        if min(self.mask, self.random) < 0 or self.mask + self.random > 1 + 1e-9:
            raise ValueError(f"mask and random are shares, at most 1 together, not {self.mask} and {self.random}")

    def size(self, pieces: int) -> int:
        """Return how many of so many pieces the fragment has.

        >>> Fragment().size(62), Fragment().size(1)
        (31, 1)
        """
        return min(max(1, round(pieces * self.share)), pieces)

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the text with its fragment masked as the source, and the fragment as what is to be written."""
        form, tokenizer = packer.form, packer.tokenizer
        pieces = len(example) - form.specials(1)
        size = self.size(pieces)
        draw, begin = rng.random(), int(rng.integers(pieces - size + 1))
        if draw < 2 * self.edges:
            begin = 0 if draw < self.edges else pieces - size
        begin += len(form.before)
        end = begin + size
        masked = slice(begin, end)
        draws = rng.random(size)
        others = rng.integers(len(tokenizer), size=size)
        ids = example.ids.astype(np.int64)
        kept = np.where(draws < self.mask + self.random, others, ids[masked])
        ids[masked] = np.where(draws < self.mask, tokenizer.mask, kept)
        if end == len(example) - len(form.after):
            end += len(form.after[:1])
        written = slice(begin, end)
        read = np.concatenate([[0], example.ids])[written]
        if begin == len(form.before):
            # Not the [CLS] before it: generation cannot know of which objective a decoder is, and starts all alike.
            read[0] = starting_piece(tokenizer)
        return replace(
            example,
            ids=read,
            positions=np.maximum(np.arange(begin, end) - 1, 0),
            segments=np.zeros(end - begin, np.int8),
            words=np.concatenate([[False], example.words])[written],
            special=np.concatenate([[True], example.special])[written],
            source=replace(example, ids=ids, targets={}),
            targets={self.name: Target(labels=example.ids[written].astype(np.int64), index=np.arange(end - begin))},
        )

    @property
    def asked(self) -> str:
        """Return the share and its value."""
        return f"share {self.share:.0%}"
