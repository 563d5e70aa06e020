"""osbert finetune: trains an encoder on a task, from the user's own table or a published data set."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions, checks_options
from osbert.console.output import Result
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL
from osbert.options import parse_settings, takes_settings
from osbert.runs.finetune.plan import find_suite, naming_tasks, schemas

SEVERAL = (
    "Several tasks at once are named one after the other, and --data is the folder with the data of each, which "
    "--TASK.data overrules: osbert finetune rte mrpc --data glue --mrpc.data MRPC --model ENCODER --out RUN. "
    "`multi --tasks rte=RTE,mrpc=MRPC` is no more."
)

FIRST = ("epochs", "batch", "learning_rate", "length", "dev", "text", "label", "long", "tuning", "seeds")
"""The settings that the help shows first."""


def settings_of(words: Sequence[str]) -> list[type]:
    """Return the schemas of the tasks in the words after the verb; by default that of classify."""
    tasks = [*itertools.takewhile(lambda word: not word.startswith("-"), words)] or ["classify"]
    return schemas(["classify"] if tasks[0] == "multi" or find_suite(tasks) else tasks)


@lru_cache(maxsize=1)  # the check reads the words first, then the call
def _read(task: str, words: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the tasks and the settings in the words after the verb."""
    if task == "multi":
        raise UserError(SEVERAL, code="replaced-option")
    tasks = (task, *itertools.takewhile(lambda word: not word.startswith("-"), words))
    suite = find_suite(tasks)
    schemes = schemas(suite.tasks) if suite else settings_of(tasks)
    with naming_tasks():
        return tasks, parse_settings(words[len(tasks) - 1 :], *schemes)


def _check(arguments: Mapping[str, Any]) -> None:
    from osbert.runs.finetune.records import check_settings

    tasks, settings = _read(arguments["task"], arguments.get("settings", ()))
    if not find_suite(tasks):
        check_settings(tasks, settings)


@checks_options(_check)
@takes_settings(settings_of, first=FIRST)
def finetune(
    task: str,
    /,
    *settings: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="More tasks; then any settings, which TASK --help shows."),
    ],
    model: ModelFolder,
    data: InputFile,
    out: Path,
    from_scratch: Annotated[bool, Parameter(negative=())] = False,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Fine-tune an encoder on a task of your own, or a published one.

    The data are read and checked whole before training; every problem is reported with its file and line. After each
    epoch the model is scored on the development rows, and the best epoch's weights are kept, or the last one's where
    these rows are fewer than 200. A run that was stopped goes on when the same command is given again, and ends in the
    same weights.

    Parameters
    ----------
    task
        classify (a label out of several), multilabel (any number of labels), regress (a number), tag or ner (a label a
        word), span (the answer to a question), choose (one of several texts), rerank (documents in the order of their
        relevance to a query), contrastive (vectors of sentences), generate (a text from a text), or a data set such as
        sst2, conll2003, squad and swag. glue: GLUE's nine sets, a run each in a folder of `out`, and the table of their
        official scores. Several tasks (rte mrpc) train one encoder, with a run folder for each below `out`.
    model
        A run folder of osbert's, a Hugging Face folder (docs/families.md), or a name (docs/models-by-name.md).
    data
        A CSV, TSV or JSON-lines file, part of which is held out for development; or a folder with files called
        train, dev and test, such as train.csv. Of several tasks, the folder with a file or folder for each, of its
        name; --rte.data is the data of one of them.
    out
        The run folder: model, tokenizer, recipe, metrics, report, checkpoints; also on an object store (s3://BUCKET/RUN).
    from_scratch
        Keep the model's architecture and vocabulary, but start from fresh weights.
    """
    from osbert.console.training_consoles import TrainingConsole
    from osbert.runs.finetune.finetune import finetune as run
    from osbert.training.interruption import Interruption, StopRequest

    tasks, chosen = _read(task, settings)
    opened = {"from_scratch": from_scratch, "opening.trust": opening.trust, "opening.verify": opening.verify}
    wish = Interruption()
    try:
        with TrainingConsole() as watch:
            suite = find_suite(tasks)
            call = suite.finetune if suite else partial(run, tasks)
            return call(model=model, data=data, out=out, watch=watch, wish=wish, **opened | chosen)
    except StopRequest:
        raise KeyboardInterrupt if wish.signal == signal.SIGINT else SystemExit(wish.status) from None
