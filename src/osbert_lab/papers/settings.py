"""The command line's settings of a table's runs as one schema with two tables, `pretraining` and `finetuning`."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Collection, Sequence
from typing import Any

from osbert import recipe
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.options import among, parse_settings
from osbert.runs.finetune.plan import schema
from osbert.runs.pretrain.settings import Recipe, recipe_schema
from osbert_lab.papers.tables import PaperTable

PRETRAINING, FINETUNING = "pretraining", "finetuning"


def table_schemas(table: PaperTable, name: str, words: Sequence[str] = (), opening: Opening = CAREFUL) -> list[type]:
    """Return schemas with the settings of both parts; each recipe and each task of the table is in one or more.

    `name`: the recipe of rows without their own. `words`: the command line, which may name objectives. Raises UserError
    for an unknown recipe, objective or family.
    """
    chosen = among(words, _tables(pretraining=Recipe))
    # Objectives and the family on the command line decide which settings a recipe's schema has.
    basic = {path.removeprefix(f"{PRETRAINING}."): value for path, value in chosen.items()}
    recipes = [
        recipe_schema(recipe_name, recipe.read(recipe_name), basic, opening) for recipe_name in table.recipes or [name]
    ]
    tasks = [schema(task) for task in table.tasks]
    # Each recipe and each task once, rather than every combination: names need only occur in one of the schemas.
    pairs = [
        *((pretraining_schema, tasks[0]) for pretraining_schema in recipes[1:]),
        *((recipes[0], task) for task in tasks),
    ]
    return [_tables(pretraining=pretraining, finetuning=task) for pretraining, task in pairs]


def split_settings(words: Sequence[str], schemas: Sequence[type]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the words of a command line into settings of pretraining and of fine-tuning, by name.

    A name that both parts have belongs to pretraining. Settings of fine-tuning are returned by their shortest names,
    which the defaults use, too. Raises UserError like `given`, and for --finetuning "...".
    """
    _refuse_joined(words)
    chosen = parse_settings(words, *schemas)
    finetuning = {name: value for name, value in chosen.items() if name.startswith(f"{FINETUNING}.")}
    pretraining = {name.removeprefix(f"{PRETRAINING}."): chosen[name] for name in chosen if name not in finetuning}
    paths = {path for table_schema in schemas for path, *_ in recipe.fields(table_schema)}
    return pretraining, {_shortest(name, paths): value for name, value in finetuning.items()}


def same_finetuning(line: str, other: str, table: PaperTable) -> bool:
    """Return whether two command lines, each as `shlex.join` writes it, have the same settings of fine-tuning.

    A line that cannot be parsed, such as one of an edited file, equals no other.

    >>> from osbert_lab.papers.tables import read_table
    >>> same_finetuning("--epochs 3 --length 64 --training.epochs 1", "--epochs 1 --length 64", read_table("table5"))
    True
    """
    schemas = [schema(task) for task in table.tasks]
    try:
        return parse_settings(shlex.split(line), *schemas) == parse_settings(shlex.split(other), *schemas)
    except (UserError, ValueError):
        return False


def _refuse_joined(words: Sequence[str]) -> None:
    """Raise UserError if the line has --finetuning "...": an earlier version took all settings of fine-tuning there."""
    for word, after in zip(words, [*words[1:], ""]):
        name, equals, value = word.partition("=")
        if name == "--finetuning":
            # Show the old argument in the new spelling: a prefix for every option in it.
            each = re.sub(r"(?<!\S)--(?=\w)", "--finetuning.", value if equals else after)
            raise UserError(
                f"--finetuning takes one setting per option: {each or '--finetuning.epochs 3'}", code="replaced-option"
            )


def _shortest(path: str, paths: Collection[str]) -> str:
    """Return the short name of a setting of fine-tuning; its full name with tables if the short one is ambiguous."""
    short = f"{FINETUNING}.{path.rpartition('.')[2]}"
    unique = sum(short in recipe.short_names(other) for other in paths) == 1
    return (short if unique else path).removeprefix(f"{FINETUNING}.")


def _tables(**parts: type) -> type:
    """Return a schema with a table for each part."""
    return dataclasses.make_dataclass("TableSettings", parts.items(), frozen=True, kw_only=True)
