"""Capital prediction: did a word begin with a capital letter, which the vocabulary does not show (ERNIE 2.0)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.pack import Packer
from osbert.data.sequences import Sequences
from osbert.objectives import Objective
from osbert.text.document import Document, Documents

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head


@dataclass(frozen=True, kw_only=True)
class Capitals(Objective):
    """Labels the first piece of each word: 1 if the word began with a capital letter in the text, else 0.

    Sun et al. 2020, section 3.2.1. Made for a vocabulary in lower case, in whose pieces nothing tells the label. The
    corpus marks capitals before lower-casing (osbert corpus build --capitals).
    """

    marked: ClassVar[bool] = True
    title: ClassVar[str] = "Capital letters"

    def examples(self, documents: Sequence[Document], packer: Packer, rng: np.random.Generator) -> Sequences:
        """Return full spans of the documents, with a label for the first piece of each word.

        Raises ValueError if the documents do not know their capitals.
        """
        sequences = packer.spans(Documents.of(documents), rng)
        capitals = sequences.documents.capitals
        if capitals is None:
            raise ValueError("the corpus was built without --capitals")
        firsts = ~packer.tokenizer.continuation[sequences.documents.ids]
        return replace(sequences, piece_labels={self.name: np.where(firsts, capitals, -1).astype(np.int8)})

    def in_words(self, labels: NDArray[Any]) -> str:
        """Return the fraction of words with a capital."""
        return f"{np.mean(labels):.0%} of the words begin with a capital letter"

    def head(self, backbone: Backbone) -> Head:
        """Return a linear layer on each token's state: two logits."""
        from osbert.models.heads.tagging import TagHead

        head = TagHead(backbone, target=self.name, labels=2)
        head.form = ""  # a published folder has room for one classifier of tokens, that of a task
        return head
