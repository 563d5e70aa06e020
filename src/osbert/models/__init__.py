"""Batches -> states: the contracts of backbones and heads, the families, and Padded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osbert.models.padded import Padded as Padded
    from osbert.models.padded import PaddedStates as PaddedStates

__all__ = ["Padded", "PaddedStates"]


def __getattr__(name: str) -> Any:
    """Return `Padded` or `PaddedStates`, imported at the first use, since importing torch takes seconds."""
    if name in __all__:
        from osbert.models import padded

        return getattr(padded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
