"""Backbones that Hugging Face has no family for: settings in config.json, tensors under their own names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert import recipe
from osbert.errors import UserError
from osbert.models.contract import Sizes, find_family

FAMILY = "osbert_family"
"""The config field with the family's name; no Hugging Face config has it."""
SETTINGS = "osbert_architecture"
"""The config field with the family's settings."""


def config(sizes: Sizes) -> dict[str, Any]:
    """Return the config.json fields that describe a backbone."""
    return {FAMILY: sizes.family, SETTINGS: recipe.as_table(sizes)}


def settings(config: Mapping[str, Any], *, where: str) -> Sizes:
    """Return the settings that `config` describes. Raises UserError if no family matches."""
    family, table = config[FAMILY], config.get(SETTINGS, {})
    if not isinstance(family, str) or not isinstance(table, Mapping):
        raise UserError(
            f"{where}: {FAMILY} must be a name and {SETTINGS} a table. Copy the file again.", code="damaged-file"
        )
    sizes: Sizes = recipe.build(find_family(family).settings, table, where=where)
    return sizes


def names(sizes: Sizes) -> dict[str, tuple[str, ...]]:
    """Return the stored names of a backbone's tensors, which are their own names; a shared one has the first of its."""
    state = sizes.empty().state_dict(keep_vars=True)
    return {name: (name,) for name in {id(tensor): name for name, tensor in reversed(state.items())}.values()}
