"""The settings of a pruning, which need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osbert.errors import UserError


@dataclass(frozen=True, kw_only=True)
class PruneSettings:
    """What is removed, and the rows that decide and compare."""

    heads: float = 0.0
    """Share of the heads to remove, from 0 to 1: the least important ones of each layer, of each the same number."""
    layers: float = 0.0
    """Share of the layers to remove, from 0 to 1: evenly spaced ones. Heads are then ranked in the remaining layers."""
    data: Path | None = None
    """Folder or file with labelled rows, instead of the data that the run was fine-tuned on."""

    def check(self) -> None:
        """Raise UserError for shares out of range, or if nothing would be removed."""
        for name in ("heads", "layers"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(
                    f"--{name} {getattr(self, name):g}: give a share from 0 to below 1, such as 0.4.",
                    code="invalid-value",
                )
        if not (self.heads or self.layers):
            raise UserError("Nothing would be removed: give --heads 0.4, --layers 0.5 or both.", code="missing-option")
