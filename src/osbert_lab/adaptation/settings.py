"""Settings of `osbert adapt`. They load no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osbert.reading.table import TableReading

PLAIN, SENTENCES, HEADS = "adapt", "adapt-sentences", "adapt-heads"
"""Packaged recipes: for an encoder, for a sentence encoder, and for new heads."""


@dataclass(frozen=True, kw_only=True)
class AdaptationOptions:
    """The options of an adaptation besides the settings of the recipe."""

    text: str = ""
    """Column with the texts; by default detected by its name."""
    general: Path | None = None
    """File with general text, similar to the model's pretraining text, to measure what it forgets. Default: the
    held-out text of the model's own run, else English docstrings of Python's standard library."""
    extend: int = 0
    """Most words of the texts to add to the vocabulary. The embedding of each starts as the mean of its pieces'. Only
    for WordPiece."""
    encoding: str = ""
    """Encoding of the texts; UTF-8 by default."""

    @property
    def reading(self) -> TableReading:
        """The options for reading files with rows."""
        return TableReading(encoding=self.encoding, names=(self.text,) if self.text else ())
