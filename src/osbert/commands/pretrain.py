"""osbert pretrain: a recipe and a corpus become a pretrained encoder in a run folder that stands alone."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


@functools.cache
def settings_help() -> str:
    """Return the help text of all settings, as a list; those of the objectives mlm and nsp among them."""
    from osbert.commands.pretrain_settings import PUBLISHED, schema
    from osbert.recipe import describe

    lines = "".join(f"\n- {line}" for line in describe(schema(PUBLISHED)).splitlines())
    return (
        "Any setting of the recipe, by its full name or, where only one table has it, by its last part "
        f"(--model.layers 4 or --layers 4):\n{lines}"
    )


def pretrain(
    recipe: str,
    /,
    # The help is made when it is asked for: this annotation is not evaluated before.
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, help=settings_help())],
    corpus: Path,
    out: Path,
) -> None:
    """Pretrain an encoder on a corpus, by a recipe.

    The run can be stopped at any moment (Ctrl-C, kill, a power cut): the same command again goes on from the last
    checkpoint and ends in the same weights, bit for bit on CPUs, as a run that was not stopped.

    Parameters
    ----------
    recipe
        A TOML file, such as the recipe.toml of another run, or the name of a packaged one: bert-base, bert-large,
        bert-medium, bert-small, bert-mini, bert-tiny, cpu.
    corpus
        A folder that `osbert corpus build` made.
    out
        The run folder: model, tokenizer, recipe, metrics, report, checkpoints.
    """
    from rich.console import Console

    from osbert.commands.pretrain_run import Run
    from osbert.commands.pretrain_settings import read_plan
    from osbert.training.interruption import Interruption
    from osbert.training.lock import locked

    plan = read_plan(recipe, settings, corpus=corpus, out=out)
    with locked(out), Interruption() as wish:
        status = Run(plan, out, Console(), wish).complete()
    if status:
        raise SystemExit(status)
