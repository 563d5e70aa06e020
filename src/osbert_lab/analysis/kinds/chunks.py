"""From which layers chunks can be read: a linear probe on words, which predicts the chunk label of each."""

from __future__ import annotations

from collections.abc import Iterator

from osbert_lab.analysis.kinds.contract import TextPass
from osbert_lab.analysis.probing import LayerProbes, ProbedItem


class Chunks(LayerProbes):
    """The words of sentences with their chunk labels; the guess without a model is the word's most frequent label."""

    reads = "chunks"
    position = 11
    name = "chunks"
    says = "the chunk of a word"
    clue = "most frequent chunk label of the word"

    def items(self, text: TextPass) -> Iterator[tuple[str, ProbedItem]]:
        """Yield the words; the control label depends on the lower-cased word."""
        placed = text.labelled
        assert placed is not None
        states = text.word_states
        for number, (word, label) in enumerate(zip(placed.words, placed.labels, strict=True)):
            word_states = states[:, number, None].copy()
            known = word.lower()
            yield placed.part, ProbedItem(text=text.number, label=label, word=known, clue=known, states=word_states)
