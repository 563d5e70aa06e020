"""A text with links between its mentions, for the choice or the scoring of attention heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert_lab.analysis.coreference_files import LinkedText
from osbert_lab.analysis.sample import place_words


@dataclass(frozen=True, kw_only=True)
class LinkedItem:
    """A text of the sample. `part`: whether heads are chosen ("select") or scored ("score") on it."""

    text: LinkedText
    part: Literal["select", "score"]

    def lay_out(self, packer: Packer) -> tuple[Example, NDArray[np.float32]]:
        """Return the text as one sequence of T tokens, and which tokens each word has, as 0 or 1 (W, T)."""
        placed = place_words(self.text.words, self.text.place, packer, Problems(heading=""))
        assert placed is not None, "the form of data has left such texts out"
        return placed
