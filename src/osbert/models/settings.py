"""The settings of a family of backbones, by its name. Those of the default family load no torch."""

from __future__ import annotations

from osbert.models.architecture import Architecture
from osbert.models.sizes import DEFAULT_FAMILY, Sizes


def settings_of(family: str | None) -> type[Sizes]:
    """Return the settings of a family, of the default one for None. Raises UserError when there is none."""
    if family in (None, DEFAULT_FAMILY):
        return Architecture
    from osbert.models.contract import find_family  # loads torch, as the family's file does

    return find_family(family).settings
