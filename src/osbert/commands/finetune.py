"""osbert finetune: an encoder becomes a model of a task, one's own table or a published data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from osbert.commands.opening_options import OpeningOptions
from osbert.commands.settings import given, takes_settings
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.runs.finetune.plan import Plan, read_plan, schema
from osbert.tasks import Record, Task, load
from osbert.terminal import one_line
from osbert.training.run_folder import RunFolder

if TYPE_CHECKING:
    from osbert.runs.finetune.run import Epoch


SPLITS = ("train", "dev")
SETTINGS = "Any setting, by its full name or its last part: --training.epochs 4 or --epochs 4."


def settings_of(words: Sequence[str]) -> list[type]:
    """Return the schema of the task that the words after the verb begin with; that of classify for several tasks."""
    task = next((word for word in words if not word.startswith("-")), "classify")
    return [schema("classify" if task in ("glue", "multi") else task)]


@takes_settings(settings_of)
def finetune(
    task: str,
    /,
    *settings: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="Settings of the task, as shown by TASK --help.")
    ],
    model: Path,
    data: Path,
    out: Path,
    from_scratch: Annotated[bool, Parameter(negative=())] = False,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Fine-tune an encoder on a task of your own, or a published one.

    The data are read and checked whole before training; every problem is told with its file and line. After each epoch
    the model is scored on the development rows, and the best epoch's weights are kept. A run that was stopped goes on
    when the same command is given again, and ends in the same weights.

    Parameters
    ----------
    task
        classify (a label out of several), regress (a number), tag (a label a word), span (the answer to a question),
        choose (one of several texts), contrastive (vectors of sentences), or a data set such as sst2, conll2003, squad
        and swag. glue: GLUE's nine sets, a run each in a folder of `out`, and the table of their official scores.
        multi: several tasks at once that share the encoder, --tasks rte=RTE,mrpc=MRPC, with a run folder for each below
        `out`.
    model
        A run folder of osbert's, or a Hugging Face folder (docs/families.md).
    data
        A CSV, TSV or JSON-lines file, of which a share is held out for development; or a folder with files called
        train.*, dev.* and test.*.
    out
        The run folder: model, tokenizer, recipe, metrics, report, checkpoints.
    from_scratch
        Keep the model's architecture and vocabulary, but start from fresh weights.
    """
    with claim(out):
        if task != "glue":
            RunFolder(out).refuse_foreign()
        if task == "glue":
            finetune_glue(settings, model=model, data=data, out=out, from_scratch=from_scratch, opening=opening)
            return
        if task == "multi":
            from osbert.runs.finetune.multi import finetune_multi

            finetune_multi(settings, model=model, data=data, out=out, from_scratch=from_scratch, opening=opening)
            return
        chosen = given(settings, *settings_of([task]))
        plan = read_plan(task, chosen, model=model, data=data, from_scratch=from_scratch)
        fitted, records = load(plan.task, SPLITS)
        tell_data(fitted, records)
        train(dataclasses.replace(plan, task=fitted, opening=opening), records, out)


def finetune_glue(
    settings: Sequence[str], *, model: Path, data: Path, out: Path, from_scratch: bool, opening: Opening
) -> None:
    """Fine-tune a run for each of GLUE's sets; all sets are checked before the first."""
    from osbert.runs.finetune.long import Reader
    from osbert.runs.study.glue import Glue

    reader = Reader.of(model)

    def checked(one: str, data: Path) -> None:
        plan = read_plan(one, given(settings, *settings_of([one])), model=model, data=data, from_scratch=from_scratch)
        reader.check(*load(plan.task, SPLITS))

    def tuned(one: str, data: Path, out: Path) -> None:
        finetune(one, *settings, model=model, data=data, out=out, from_scratch=from_scratch, opening=opening)

    Glue(check=checked, tune=tuned).run(data, out)


def tell_data(task: Task, records: Mapping[str, Sequence[Record]]) -> None:
    """Print what was found in the data: the form of each file, the columns, the rows, the labels."""
    for line in task.findings():
        print(one_line(line))
    for split, found in records.items():
        print(f"{split}: {one_line(task.describe(found))}", flush=True)
    if passed_over := task.passed_over(records["train"]):
        print(f"train: {one_line(passed_over)}", flush=True)


def train(plan: Plan, records: Mapping[str, Sequence[Record]], out: Path) -> Epoch:
    """Fine-tune to the end, once or as often as a comparison wants; return the best epoch, the folder's model."""
    from osbert.runs.finetune import train as finetune_train
    from osbert.runs.finetune.defaults import fill_defaults, steps_per_epoch
    from osbert.runs.study.trials import compare

    plan = fill_defaults(plan, steps_per_epoch(plan.task, records["train"]), out)
    if plan.comparison.wanted:
        return compare(plan, records, out)
    model = finetune_train.start(plan)
    finetune_train.tell_model(plan, model)
    best = finetune_train.train(plan, finetune_train.lay_out(plan, records, model), model, out)
    finetune_train.tell_end(best, out, plan.task)
    return best
