"""Settings of `osbert export`. They load no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osbert.interop.opening import Opening
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
