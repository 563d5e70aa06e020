"""osbert bench: measures how fast a recipe trains on this machine, and compares it with the machine's peak."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from osbert.console.arguments import OpeningOptions
from osbert.console.output import Result
from osbert.console.recipe_options import RecipeName, RecipeSettings, recipe_and_settings, schemas_shown
from osbert.errors import UserError
from osbert.files import as_json, writing_output
from osbert.interop.opening import CAREFUL
from osbert.lock import claim
from osbert.options import takes_settings
from osbert.terminal import open_console
from osbert_lab.planning.tables import print_speed


@takes_settings(schemas_shown)
def bench(
    recipe: RecipeName = "",
    /,
    *settings: RecipeSettings,
    corpus: Path | None = None,
    seconds: float = 20.0,
    out: Path | None = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Measure the speed of pretraining by a recipe.

    Trains for some seconds with the run's own trainer and loader and throws the weights away. Reports tokens a
    second, the fraction of the processor's peak, the memory, and the speed of the loader alone.

    Parameters
    ----------
    recipe
        A recipe, as for `osbert pretrain`; by default "cpu", or "bert-base" with a GPU.
    corpus
        A folder that `osbert corpus build` made; without one, a corpus of made-up words is measured on.
    seconds
        Approximate duration; a step of a large model can take longer.
    out
        A JSON file for the figures.
    """
    from osbert_lab.planning.benchmark import measure_speed

    if out is not None and out.is_dir():
        raise UserError(f"{out} is a folder. Give the path of a file as --out.", code="output-is-folder")
    name, chosen = recipe_and_settings((recipe, *settings), opening=opening)
    with nullcontext() if out is None else claim(out) as claimed_path:
        figures = measure_speed(name, chosen, corpus=corpus, seconds=seconds, opening=opening)
        print_speed(figures, open_console())
        if claimed_path is not None:
            with writing_output(claimed_path) as path:
                path.write_text(as_json(figures), encoding="utf-8")
    return figures
