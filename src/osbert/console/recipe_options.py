"""The recipe and its settings on the command line, for the verbs that pretrain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from osbert.interop.opening import CAREFUL, Opening
from osbert.options import among, parse_settings

RecipeName = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""The first word of a verb of pretraining; it may be a setting instead."""
RecipeSettings = Annotated[
    str, Parameter(allow_leading_hyphen=True, help="Settings of the recipe, as shown by RECIPE --help.")
]
"""The remaining words."""


def recipe_and_settings(
    words: Sequence[str], *, origin: Path | None = None, opening: Opening = CAREFUL
) -> tuple[str, dict[str, Any]]:
    """Return the recipe's name in the first word ("" if it is a setting), and the settings by name.

    `origin`: the folder of an encoder that is trained further, whose recipe serves where none is named. Raises
    UserError for an unknown recipe, and for a word that is not a setting of it.

    >>> recipe_and_settings(["cpu", "--layers", "4"])
    ('cpu', {'model.layers': '4'})
    """
    name, rest = _split(words)
    return name, parse_settings(rest, *schemas(name, rest, origin=origin, opening=opening))


def schemas(
    name: str, words: Sequence[str], *, origin: Path | None = None, opening: Opening = CAREFUL
) -> Sequence[type]:
    """Return the schema of a recipe with the objectives and the family in `words`; without a recipe, BERT's.

    From another encoder there is one for each family: which is that encoder's is known when it is opened.
    """
    from osbert import components, recipe
    from osbert.runs.pretrain.settings import Recipe, recipe_schema

    if not name and origin is not None:
        from osbert.runs.pretrain.start import recipe_of  # loads torch, as what follows does for an encoder

        name = recipe_of(origin)
    table = recipe.read(name) if name else {}
    chosen = among(words, Recipe)
    families = [table.get("family")] if origin is None else components.names("models.families")
    return [recipe_schema(name, {**table, "family": family}, chosen, opening) for family in families]


def schemas_shown(words: Sequence[str]) -> Sequence[type]:
    """Return the schema of the recipe in the words after a verb, for the verb's help."""
    return schemas(*_split(words))


def _split(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the recipe's name in the first word ("" if it is a setting), and the other words."""
    if words and not words[0].startswith("-"):
        return words[0], words[1:]
    return "", words
