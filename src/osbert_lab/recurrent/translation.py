"""Translation: a decoder writes the second sentence of a document from the first (CoVe, McCann et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from osbert.data.example import Example
from osbert.data.pack import Packer, trim_lengths
from osbert.data.sequences import Sequences
from osbert.text.document import Document, Documents
from osbert_lab.writing.decoder_inputs import decoder_example
from osbert_lab.writing.objectives.contract import WritingObjective

SOURCE, TARGET = 0, 1
"""The segments of a laid-out pair. The model gets segment 0 in both."""


@dataclass(frozen=True, kw_only=True)
class Translation(WritingObjective):
    """The source is the first sentence of a document, and the target the second.

    Other documents are skipped: where a text of three sentences has a translation of one, nothing in a corpus says
    where the text ends. Source and target fit into data.length together; pieces that do not fit are cut from the end of
    the longer one. The decoder starts with the piece that starts every generated text (decoder_inputs.py) and ends
    with the end piece.
    """

    document_sentences: ClassVar[int] = 2
    title: ClassVar[str] = "translation"

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return a pair for each whole document of two sentences, `before source between target after`."""
        joined = Documents.of(documents)
        pairs = np.diff(joined.starts) == self.document_sentences
        if joined.cut is not None:  # two sentences of a longer document are no pair
            pairs &= ~joined.cut
        firsts = joined.starts[:-1][pairs]
        bounds = joined.sentences[firsts[:, None] + np.arange(3)]  # (E, 3), in pieces
        sizes = np.diff(bounds)
        trimmed_sizes = np.stack(trim_lengths(sizes[:, 0], sizes[:, 1], packer.room(2)), axis=1)
        return Sequences(
            documents=joined,
            tokenizer=packer.tokenizer,
            firsts=bounds[:, :2].ravel(),
            sizes=trimmed_sizes.ravel(),
            segments=np.tile(np.array([SOURCE, TARGET], np.int8), len(trimmed_sizes)),
            counts=np.full(len(trimmed_sizes), 2),
            truncated=(sizes - trimmed_sizes).sum(axis=1),
        )

    def corrupt(self, example: Example, packer: Packer, rng: np.random.Generator) -> Example:
        """Return the second text of a pair as the decoder's text, with the first one as its source."""
        source, target = (_alone(example, segment, packer) for segment in (SOURCE, TARGET))
        # As in generation, the decoder writes no special pieces before a text.
        opening = len(packer.form.before)
        columns = {name: getattr(target, name)[opening:] for name in ("ids", "segments", "words", "special")}
        decoder_text = decoder_example(source, replace(target, **columns), packer.tokenizer, name=self.name)
        return replace(decoder_text, truncated=example.truncated)


def _alone(example: Example, segment: int, packer: Packer) -> Example:
    """Return one text of a pair as a sequence of its own."""
    mask = (example.segments == segment) & ~example.special
    return packer.single(example.ids[mask], example.words[mask], record=example.record)
