"""From which layers parts of speech can be read: a linear probe on words. The tags are the universal ones."""

from __future__ import annotations

from collections.abc import Iterator

from osbert_lab.analysis.kinds.contract import TextPass
from osbert_lab.analysis.probing import LayerProbes, ProbedItem


class Tags(LayerProbes):
    """The words of trees with their tags; the guess without a model is the most frequent tag of the word."""

    reads = "trees"
    position = 10
    name = "tags"
    says = "part of speech"
    clue = "most frequent tag of the word"

    def items(self, text: TextPass) -> Iterator[tuple[str, ProbedItem]]:
        """Yield the words with a tag ("_" is none); the control label depends on the lower-cased word."""
        assert text.tree is not None
        states = text.word_states
        for number, (word, tag) in enumerate(zip(text.tree.tree.words, text.tree.tree.tags, strict=True)):
            if tag != "_":
                word_states = states[:, number, None].copy()
                known = word.lower()
                yield (
                    text.tree.part,
                    ProbedItem(text=text.number, label=tag, word=known, clue=known, states=word_states),
                )
