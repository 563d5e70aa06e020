"""How a run is exported, and the keywords of `osbert.export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osbert.interop.opening import Opening
from osbert.runs.file_options import LabelledOptions


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """How a run is exported, and what it is compared on."""

    int8: bool = False
    """Weights of a byte each: a quarter of the size, and the faster for it; predictions change a little."""
    tolerance: float = 0.01
    """How much the metric may drop, 0.01 being a point of a hundred."""
    data: Path | None = None
    """Labelled rows to compare on, a file or a folder, in place of the run's own development rows."""
    unchecked: bool = False
    """Compare nothing."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The keywords of `osbert.export`: the export, how its data is read, and how the run's folder is opened."""

    settings: ExportSettings
    file: LabelledOptions
    opening: Opening
