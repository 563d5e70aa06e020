"""Document: the pieces of one source, with the sentence and word boundaries kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Document:
    """Pieces of one source; n pieces in s sentences.

    `ids` (n,): pieces, no specials. `sentences` (s + 1,): sentence k is ids[sentences[k]:sentences[k + 1]]. `words`
    (n,): True where a word starts.
    """

    ids: NDArray[np.integer]
    sentences: NDArray[np.integer]
    words: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self.ids)
