"""The options of an adaptation besides the settings of its recipe, and the names of its recipes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osbert.reading.table import TableReading

PLAIN, SENTENCES, HEADS = "adapt", "adapt-sentences", "adapt-heads"
"""The packaged recipes: for an encoder, for a sentence encoder, and for heads that are new."""


@dataclass(frozen=True, kw_only=True)
class AdaptationOptions:
    """What an encoder is adapted with besides the settings of the recipe."""

    text: str = ""
    """The column with the texts; by default it is detected by its name."""
    general: Path | None = None
    """A file of general text like that which the model was trained on, to measure what it forgets. By default the
    held-out text of the run that made the model; without one English docstrings of Python's standard library."""
    extend: int = 0
    """Words of the texts that become pieces of the vocabulary, at most; each starts at the mean of the pieces that
    spelt it. WordPiece alone."""
    encoding: str = ""
    """The encoding of the texts, where it is not UTF-8."""

    @property
    def reading(self) -> TableReading:
        """Return how files of rows are read."""
        return TableReading(encoding=self.encoding, names=(self.text,) if self.text else ())
