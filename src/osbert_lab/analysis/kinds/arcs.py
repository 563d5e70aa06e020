"""From which layers dependency relations can be read: a linear probe on the states of a word and of its head.

The probe reads both words, as in edge probing (Tenney et al. 2019). It predicts the relation, not which word is the
head.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from osbert_lab.analysis.kinds.contract import TextPass
from osbert_lab.analysis.probing import LayerProbes, ProbedItem

SKIPPED = ("root", "punct")
"""Skipped labels: "root" has no second word, "punct" is about punctuation."""


class Arcs(LayerProbes):
    """The labelled arcs of trees; the guess without a model uses both parts of speech and the direction."""

    reads = "trees"
    position = 12
    name = "arcs"
    says = "the relation of two words"
    unit = "dependents"
    clue = "most frequent relation of the two parts of speech"
    slots = 2

    def items(self, text: TextPass) -> Iterator[tuple[str, ProbedItem]]:
        """Yield the arcs; the control label depends on the dependent alone."""
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
