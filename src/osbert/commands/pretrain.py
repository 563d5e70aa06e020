"""osbert pretrain: a recipe and a corpus become a pretrained encoder in a run folder that stands alone."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.commands.event_consoles import TrainingConsole
from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.interop.opening import CAREFUL
from osbert.terminal import open_console


@functools.cache
def settings_help() -> str:
    """Return the help text of all settings, as a list; those of the objectives mlm and nsp among them."""
    from osbert.recipe import describe
    from osbert.runs.pretrain.settings import PUBLISHED, schema

    lines = "".join(f"\n- {line}" for line in describe(schema(PUBLISHED)).splitlines())
    return (
        "Any setting of the recipe, by its full name or, where only one table has it, by its last part "
        f"(--model.layers 4 or --layers 4):\n{lines}"
    )


def pretrain(
    recipe: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    /,
    # The help is made when it is asked for: this annotation is not evaluated before.
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, help=settings_help())],
    corpus: Path,
    out: Path,
    origin: Annotated[ModelFolder | None, Parameter(name="--from")] = None,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Pretrain an encoder on a corpus, by a recipe.

    The run can be stopped at any moment (Ctrl-C, kill, a power cut): the same command again goes on from the last
    checkpoint and ends in the same weights, bit for bit on CPUs, as a run that was not stopped.

    Parameters
    ----------
    recipe
        A TOML file, such as the recipe.toml of another run, or the name of a packaged one: bert-base, bert-large,
        bert-medium, bert-small, bert-mini, bert-tiny, bert-paper, bert-fast, roberta-base,
        cpu, further.
    corpus
        A folder that `osbert corpus build` made.
    out
        The run folder: model, tokenizer, recipe, metrics, report, checkpoints.
    origin
        A finished run, a Hugging Face folder, or a name (docs/models-by-name.md), whose encoder is trained further,
        usually on another corpus. Where no recipe is named its own serves, or the recipe further; the learning rate is
        at most 5e-5 unless you give one. The held-out text of a run is measured beside the new one.
    """
    from osbert.recipe import split
    from osbert.runs.pretrain import pretraining
    from osbert.runs.pretrain.budget import since_start
    from osbert.training.interruption import Interruption, Stopped

    name, chosen = split((recipe, *settings))
    request = pretraining.PretrainRequest(
        recipe=name,
        settings=chosen,
        corpus=corpus,
        out=out,
        origin=origin,
        opening=opening,
        begun=time.monotonic() - since_start(),
    )
    with Interruption() as wish, TrainingConsole(open_console()) as watch:
        try:
            pretraining.pretrain(request, watch=watch, wish=wish)
        except Stopped:
            raise SystemExit(wish.status) from None
