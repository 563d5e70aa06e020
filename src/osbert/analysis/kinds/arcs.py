"""Where relations can be read: a linear probe on the states of a word and of its head, which names their relation.

The probe is given both words, as in edge probing (Tenney et al. 2019), and not which of the words is the head.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from osbert.analysis.kinds.contract import TextPass
from osbert.analysis.probing import LayerProbes, ProbedItem

SKIPPED = ("root", "punct")
"""Relations that are no relation of two words of the sentence, or of punctuation."""


class Arcs(LayerProbes):
    """The arcs of trees with their labels; without a model the two parts of speech are the best guess."""

    reads = "trees"
    place = 12
    name = "arcs"
    says = "the relation of two words"
    unit = "dependents"
    clue = "most frequent relation of the two parts of speech"
    slots = 2

    def items(self, text: TextPass) -> Iterator[tuple[str, ProbedItem]]:
        """Yield the arcs; the label of the control task depends on the dependent alone."""
        assert text.tree is not None
        states = text.word_states
        tree = text.tree.tree
        for number, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if head >= 0 and relation not in SKIPPED:
                yield (
                    text.tree.part,
                    ProbedItem(
                        text=text.number,
                        label=relation,
                        word=tree.words[number].lower(),
                        clue=f"{tree.tags[number]} {tree.tags[head]} {np.sign(head - number):+d}",
                        states=states[:, [number, head]],
                    ),
                )
