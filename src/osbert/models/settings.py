"""The settings of a family of backbones, by its name. Those of osbert's own recipes load no torch."""

from __future__ import annotations

from osbert.models.architecture import Architecture
from osbert.models.pair_architecture import PairArchitecture
from osbert.models.sizes import Sizes

LIGHT: dict[str, type[Sizes]] = {one.family: one for one in (Architecture, PairArchitecture)}
"""The settings whose files load no torch, so that the help of a recipe is quick."""


def settings_of(family: str | None) -> type[Sizes]:
    """Return the settings of a family, of the default one for None. Raises UserError when there is none."""
    if family is None:
        return Architecture
    if family in LIGHT:
        return LIGHT[family]
    from osbert.models.contract import find_family  # loads torch, as the family's file does

    return find_family(family).settings
