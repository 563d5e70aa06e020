"""osbert adapt: an encoder goes on with the texts of a domain, and is watched for what it forgets."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.commands.output import Result
from osbert.commands.recipe_options import schemas
from osbert.commands.training_consoles import TrainingConsole
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL
from osbert.options import given, takes_settings
from osbert.runs.adapt.settings import PLAIN, AdaptationOptions


def settings_shown(words: Sequence[str]) -> Sequence[type]:
    """Return the schema of the settings that the help shows: those for masked language modelling."""
    return schemas(PLAIN, [])


@takes_settings(settings_shown)
def adapt(
    model: ModelFolder,
    /,
    *texts: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="Files and folders of texts; then any settings, shown by --help."),
    ],
    out: Path,
    options: Annotated[AdaptationOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Adapt an encoder to the texts of your domain, without destroying what it knows.

    The texts are rows of a table (CSV, JSON lines, Parquet; the column is found by its name) or files of text. An
    encoder goes on with masked pieces, a sentence encoder with SimCSE. A head that is new learns first, on the encoder
    as it is. The loss on held-out texts and on general text is shown; the run ends early when the latter rises by
    --forgetting. It is as long as --steps or --minutes say, and the same command goes on with one that was stopped.

    Parameters
    ----------
    model
        A run folder of osbert's, a Hugging Face folder, or a name (docs/models-by-name.md).
    out
        The run folder: the adapted model, tokenizer, recipe, metrics, report, checkpoints.
    """
    from osbert.runs.adapt.run import AdaptationRequest, recipe_for
    from osbert.runs.adapt.run import adapt as run
    from osbert.runs.pretrain.budget import since_start
    from osbert.training.interruption import Interruption, StopRequest

    begun = time.monotonic() - since_start()
    files = [*itertools.takewhile(lambda word: not word.startswith("-"), texts)]
    words = texts[len(files) :]
    if not files:
        raise UserError("Name files of texts after the model: osbert adapt MODEL texts.csv --out RUN.", code="no-data")
    with Interruption() as wish, TrainingConsole() as watch:
        request = AdaptationRequest(
            model=model,
            texts=[Path(file) for file in files],
            out=out,
            options=options or AdaptationOptions(),
            settings=given(words, *schemas(recipe_for(model, opening), words, origin=model, opening=opening)),
            opening=opening,
            begun=begun,
        )
        try:
            return run(request, watch=watch, wish=wish)
        except StopRequest:
            raise SystemExit(wish.status) from None
