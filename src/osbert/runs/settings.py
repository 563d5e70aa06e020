"""Settings of `osbert export` and `osbert adapt`. They load no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osbert.interop.opening import Opening
from osbert.reading.table import TableReading
from osbert.runs.file_options import LabelledOptions


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """How a run is exported, and what it is compared on."""

    int8: bool = False
    """Quantise weights to 8 bits: a quarter of the size, and faster; predictions change slightly."""
    tolerance: float = 0.01
    """Largest allowed drop of the metric: 0.01 is one percentage point."""
    data: Path | None = None
    """File or folder with labelled rows to compare on, instead of the run's own development rows."""
    unchecked: bool = False
    """Do not compare the export with the run."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The keywords of `osbert.export`: the export, how its data is read, and how the run's folder is opened."""

    settings: ExportSettings
    file: LabelledOptions
    opening: Opening


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
