"""The settings class of a family, by its name. Those of built-in families do not import torch."""

from __future__ import annotations

from osbert import components
from osbert.models.architecture import Architecture
from osbert.models.sizes import DEFAULT_FAMILY, Sizes


def settings_of(family: str | None) -> type[Sizes]:
    """Return the settings class of a family; None: the default family. Raises UserError if there is none.

    The settings of a family of another package are found without torch if it has an entry point for them in the group
    `osbert.models.settings`.
    """
    if (name := family or DEFAULT_FAMILY) == Architecture.family:
        return Architecture
    if extension := components.extension("models.settings", name):
        return extension.load()
    from osbert.models.contract import find_family  # loads torch, as the family's file does

    return find_family(name).settings
