"""Translation: a decoder writes the second sentence of a document from the first (CoVe, McCann et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from osbert.data.example import Example
from osbert.data.pack import Packer, trim_lengths
from osbert.data.sequences import Sequences
from osbert.interop.opening import CAREFUL
from osbert.text.document import Document
from osbert_lab.crosslingual.sentence_pairs import SENTENCES, find_pairs
from osbert_lab.writing.decoder_inputs import decoder_example
from osbert_lab.writing.objectives.contract import WritingObjective

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head, Sizes

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

    document_sentences: ClassVar[int] = SENTENCES
    title: ClassVar[str] = "translation"

    vectors: str = ""
    """A folder of word vectors (osbert convert), which the words of the source have and keep: GloVe's in the paper
    (section 3). Words without one have the vector 0. It needs model.own_tables, and a width of twice the vectors'."""

    def inputs(self) -> dict[str, str]:
        """Return the fingerprint of the word vectors, so that no other ones go on with a run."""
        from osbert.interop.folder import open_folder

        return {"vectors": open_folder(Path(self.vectors), CAREFUL).fingerprint} if self.vectors else {}

    def objections(self, architecture: Sizes) -> Iterator[str]:
        """Yield a message for each reason why a model cannot be trained, such as word vectors of another width."""
        yield from super().objections(architecture)
        if not self.vectors:
            return
        from osbert.interop.folder import open_folder

        vectors = open_folder(Path(self.vectors), CAREFUL).architecture
        if not getattr(architecture, "own_tables", False):
            yield (
                f"{self.name}.vectors are those of one language, which would also be the vectors of the words that are "
                "written. Set model.own_tables = true."
            )
        if vectors.layers or 2 * vectors.width != architecture.width:
            what = f"{vectors.layers} layers" if vectors.layers else f"vectors of {vectors.width} numbers"
            yield (
                f"{self.vectors} has {what}, and model.width = {architecture.width} needs vectors of "
                f"{architecture.width // 2}. Set model.width = {2 * vectors.width}, or give other vectors."
            )

    def head(self, backbone: Backbone) -> Head:
        """Return the language-model head on the decoder; the word vectors are in the backbone then, and stay."""
        head = super().head(backbone)
        if self.vectors:
            from osbert_lab.recurrent.source_vectors import keep_vectors

            keep_vectors(backbone, Path(self.vectors))
        return head

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return a pair for each whole document of two sentences, `before source between target after`."""
        joined, bounds = find_pairs(documents)
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
