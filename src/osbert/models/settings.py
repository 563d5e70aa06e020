"""The settings class of a family, by its name. Those of built-in families do not import torch."""

from __future__ import annotations

from osbert.models.architecture import Architecture
from osbert.models.bilm_architecture import BilmArchitecture
from osbert.models.pair_architecture import PairArchitecture
from osbert.models.sizes import DEFAULT_FAMILY, Sizes
from osbert.models.translator_architecture import TranslatorArchitecture


def settings_of(family: str | None) -> type[Sizes]:
    """Return the settings class of a family; None: the default family. Raises UserError if there is none."""
    families = (Architecture, BilmArchitecture, PairArchitecture, TranslatorArchitecture)
    light: dict[str, type[Sizes]] = {one.family: one for one in families}
    if (name := family or DEFAULT_FAMILY) in light:
        return light[name]
    from osbert.models.contract import find_family  # loads torch, as the family's file does

    return find_family(name).settings
