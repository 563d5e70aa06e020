"""osbert pretrain: trains an encoder on a corpus by a recipe, into a self-contained run folder."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions
from osbert.console.output import Result
from osbert.console.recipe_options import RecipeName, RecipeSettings, recipe_and_settings, schemas_shown
from osbert.console.training_consoles import TrainingConsole
from osbert.interop.opening import CAREFUL
from osbert.options import takes_settings


@takes_settings(schemas_shown)
def pretrain(
    recipe: RecipeName = "",
    /,
    *settings: RecipeSettings,
    corpus: InputFile,
    out: Path,
    origin: Annotated[ModelFolder | None, Parameter(name="--from")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Pretrain an encoder on a corpus, by a recipe.

    The run can be stopped at any moment (Ctrl-C, kill, a power cut): the same command resumes from the last checkpoint,
    and gives the same weights as an uninterrupted run, on CPUs bit for bit.

    Parameters
    ----------
    recipe
        A TOML file, such as the recipe.toml of another run, or the name of a packaged one: bert-base, bert-large,
        bert-medium, bert-small, bert-mini, bert-tiny, bert-paper, bert-fast, roberta-base, cpu, further; models that
        write: gpt-small, unilm-base, unilm-small, t5-small, t5-mini, bart-base, bart-mini, mass-base, mass-mini;
        vectors of words: word2vec, glove. More: docs/recipes.md.
    corpus
        A folder that `osbert corpus build` made.
    out
        The run folder: model, tokenizer, recipe, metrics, report, checkpoints; also on an object store (s3://BUCKET/RUN).
    origin
        A finished run, a Hugging Face folder, or a name (docs/models-by-name.md), whose encoder is trained further,
        usually on another corpus. Where no recipe is named its own serves, or the recipe further; the learning rate is
        at most 5e-5 unless you give one. The held-out text of a run is measured beside the new one.
    """
    from osbert.runs.pretrain import pretraining
    from osbert.training.distributed import PeerFailure, join_group
    from osbert.training.interruption import Interruption, StopRequest

    begun, status, run = time.monotonic() - pretraining.since_start(), 0, None
    with join_group() as group, Interruption() as wish, TrainingConsole() as watch:
        try:
            name, chosen = group.each(partial(recipe_and_settings, (recipe, *settings), origin=origin, opening=opening))
            request = pretraining.PretrainRequest(
                recipe=name, settings=chosen, corpus=corpus, out=out, origin=origin, opening=opening, begun=begun
            )
            run = pretraining.pretrain(request, watch=watch, wish=wish)
        except StopRequest:
            status = wish.status
        except PeerFailure:  # of several processes one says what is wrong
            raise SystemExit(1) from None
    if status:
        raise SystemExit(status)
    return None if group.rank else run
