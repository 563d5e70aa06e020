"""osbert plan: finds the model size for a time budget and a corpus, and writes its recipe."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from osbert.console.arguments import InputFile, OpeningOptions
from osbert.console.output import Result, say, watching
from osbert.console.recipe_options import RecipeName, RecipeSettings, recipe_and_settings, schemas_shown
from osbert.interop.opening import CAREFUL
from osbert.options import takes_settings
from osbert.remote import display_path
from osbert.runs.contract import Notice
from osbert.terminal import open_console
from osbert_lab.planning.tables import print_sizes


@takes_settings(schemas_shown)
def plan(
    recipe: RecipeName = "",
    /,
    *settings: RecipeSettings,
    corpus: InputFile,
    minutes: float,
    gpu: Annotated[bool, Parameter(negative=())] = False,
    out: Path = Path("plan.toml"),
    seconds: float = 20.0,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Plan pretraining for a time budget: a table of model sizes, and a recipe for the best one.

    Trains a few sizes for 20 seconds in all, and works out for these and others how much text the minutes allow, how
    often the corpus would be seen, memory, disk, and the held-out loss to expect.

    Parameters
    ----------
    recipe
        A recipe, as for `osbert pretrain`, whose size is varied; by default "cpu", with --gpu "bert-fast".
    corpus
        A folder that `osbert corpus build` made.
    minutes
        The time that pretraining may take.
    gpu
        Plan for the GPU of this machine, or for an assumed one if it has none.
    out
        The file for the recipe.
    seconds
        How long to test the speed.
    """
    from osbert_lab.planning.sizing import SizeComparison, SizeRequest, plan_size

    console = open_console()

    def print_event(event: Any) -> None:
        if isinstance(event, SizeComparison):
            print_sizes(event, console)
        else:
            say(console, event)

    name, chosen = recipe_and_settings((recipe, *settings), opening=opening)
    request = SizeRequest(
        recipe=name, settings=chosen, corpus=corpus, minutes=minutes, gpu=gpu, seconds=seconds, opening=opening
    )
    comparison = plan_size(request, out=out, watch=watching(print_event))
    words = ["pretrain", str(out), "--corpus", display_path(corpus), "--out", "run", *opening.words]
    watching(print_event)(Notice(f"The recipe is in {out}:\n  osbert {shlex.join(words)}"))
    return comparison
