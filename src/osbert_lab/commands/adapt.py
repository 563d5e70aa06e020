"""osbert adapt: trains an encoder further on the texts of a domain, and measures what it forgets."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import ModelFolder, OpeningOptions
from osbert.console.output import Result
from osbert.console.recipe_options import RecipeSettings, schemas
from osbert.console.training_consoles import TrainingConsole
from osbert.interop.opening import CAREFUL
from osbert.options import parse_settings, takes_settings
from osbert_lab.adaptation.settings import PLAIN, AdaptationOptions

Options = Annotated[AdaptationOptions | None, Parameter(name="*")]


@takes_settings(lambda words: schemas(PLAIN, []))
def adapt(
    model: ModelFolder, /, *texts: RecipeSettings, out: Path, options: Options = None, opening: OpeningOptions = CAREFUL
) -> Result:
    """Adapt an encoder to TEXTS (tables or text files) of your domain, without destroying what it knows: docs/adapt.md.

    Settings follow the texts. The run ends early when the loss on general text rises by more than --forgetting;
    the same command goes on with one that was stopped.
    """
    from osbert.training.interruption import Interruption, StopRequest
    from osbert_lab.adaptation import adapt as run

    files = [*itertools.takewhile(lambda word: not word.startswith("-"), texts)]
    words, paths, chosen = texts[len(files) :], [Path(file) for file in files], options or AdaptationOptions()
    with Interruption() as wish, TrainingConsole() as watch:
        settings = parse_settings(words, *schemas(run.recipe_for(model, opening), words, origin=model, opening=opening))
        try:
            request = run.AdaptationRequest(model, paths, out, options=chosen, settings=settings, opening=opening)
            return run.adapt(request, watch=watch, wish=wish)
        except StopRequest:
            raise SystemExit(wish.status) from None
