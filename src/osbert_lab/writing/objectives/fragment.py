"""Fragments: a decoder generates the part of a text that is masked in the source (MASS, Song et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from osbert.data.example import Example, Target
from osbert.data.pack import Packer
from osbert.text.file_tokenizer import starting_piece
from osbert_lab.writing.objectives.contract import WritingObjective


@dataclass(frozen=True, kw_only=True)
class Fragment(WritingObjective):
    """Consecutive pieces of each text are masked in the source, and the decoder generates only these.

    The decoder's input is the piece before each, at its position in the text (section 3.2). Before the first piece of a
    text it is the piece that starts every generated text (decoder_inputs.py); after the last one the decoder
    predicts the end piece. A pretrained model thus begins and ends texts as in generation. The source keeps all special
    pieces around the text; those between two documents may be in a fragment.
    """

    title: ClassVar[str] = "a missing fragment"

    share: float = 0.5
    """Length of the fragment as a fraction of the text's pieces; the authors found one half best."""
    edges: float = 0.2
    """Fraction of texts whose fragment is their beginning, and the same fraction for their end; in the others the
    position is uniform. The authors' code has 0.2 for translation and 0 for summaries."""
    mask: float = 0.8
    """Fraction of the fragment's pieces that are masked in the source."""
    random: float = 0.1
    """Fraction of them that are replaced with a random piece in the source; the others are unchanged."""

    def __post_init__(self) -> None:
        """Raise ValueError for fractions out of range."""
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be a fraction above 0 and at most 1, not {self.share}")
        if not 0 <= self.edges <= 0.5:
            raise ValueError(
                f"edges must be a fraction from 0 to 0.5 (the texts that lose either end), not {self.edges}"
            )
        if min(self.mask, self.random) < 0 or self.mask + self.random > 1 + 1e-9:
            raise ValueError(
                f"mask and random are fractions whose sum must be at most 1, not {self.mask} + {self.random}"
            )

    def size(self, pieces: int) -> int:
        """Return the length of the fragment of a text of `pieces` pieces, at least 1.

        >>> Fragment().size(62), Fragment().size(1)
        (31, 1)
        """
        return min(max(1, round(pieces * self.share)), pieces)

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the fragment as the decoder's text; its source is the text with the fragment masked."""
        form, tokenizer = packer.form, packer.tokenizer
        pieces = len(example) - form.specials(1)
        size = self.size(pieces)
        # Both numbers are drawn even if only one is used, so that every text consumes as many of them.
        draw, begin = rng.random(), int(rng.integers(pieces - size + 1))
        # One number decides: below `edges` the beginning, below twice that the end, else the uniform position.
        if draw < 2 * self.edges:
            begin = 0 if draw < self.edges else pieces - size
        # From here on, indices count the special pieces before the text too.
        begin += len(form.before)
        end = begin + size
        masked = slice(begin, end)
        # One draw for each piece: [0, mask) masks, [mask, mask + random) replaces, the rest keeps the piece.
        draws = rng.random(size)
        others = rng.integers(len(tokenizer), size=size)
        ids = example.ids.astype(np.int64)
        unmasked_ids = np.where(draws < self.mask + self.random, others, ids[masked])
        ids[masked] = np.where(draws < self.mask, tokenizer.mask, unmasked_ids)
        # A fragment at the end of the text also contains the piece that ends it, so that the decoder learns to stop.
        if end == len(example) - len(form.after):
            end += len(form.after[:1])
        written = slice(begin, end)
        # Shifted by one: the input at a position is the piece before it. The 0 in front is never read: begin >= 1, or
        # it is overwritten below.
        read = np.concatenate([[0], example.ids])[written]
        if begin == len(form.before):
            # Not the [CLS] before it: generation starts every decoder in the same way, whatever its objective was.
            read[0] = starting_piece(tokenizer)
        return replace(
            example,
            ids=read,
            # The position of the piece that is read, not of the piece that is predicted (section 3.2).
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
