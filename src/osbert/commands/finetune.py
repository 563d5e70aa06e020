"""osbert finetune: an encoder becomes a model of a task, one's own table or a published data set."""

from __future__ import annotations

import dataclasses
import functools
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from osbert import __version__, components, recipe
from osbert.errors import UserError
from osbert.files import disk_full, write_text
from osbert.tasks import Record, Task, load

if TYPE_CHECKING:
    from osbert.commands.finetune_run import Epoch, Finetuning, Model
    from osbert.training.run_folder import RunFolder

REMARKS = "remarks.txt"
"""The list of what was mended or is amiss in the data, in a run's folder."""


SPLITS = ("train", "dev")


@functools.cache
def settings_help() -> str:
    """Return the help text of all settings, as a list; those of the task classify among them."""
    from osbert.recipe import describe

    lines = "".join(f"\n- {line}" for line in describe(schema("classify")).splitlines())
    return f"Any setting, by its full name or its last part (--training.epochs 4 or --epochs 4):\n{lines}"


def finetune(
    task: str,
    /,
    # The help is made when it is asked for: this annotation is not evaluated before.
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, help=settings_help())],
    model: Path,
    data: Path,
    out: Path,
    from_scratch: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Fine-tune an encoder on a task of your own, or a published one.

    The data are read and checked whole before training; every problem is told with its file and line. After each epoch
    the model is scored on the development rows, and the best epoch's weights are kept. A run that was stopped goes on
    when the same command is given again, and ends in the same weights.

    Parameters
    ----------
    task
        classify (a label out of several), regress (a number), span (the answer to a question), choose (one of several
        texts), or a data set such as sst2, squad and swag; glue: GLUE's nine sets, a run each in a folder of `out`, and
        the table of their official scores.
    model
        A run folder of osbert's, or a Hugging Face BERT folder.
    data
        A CSV, TSV or JSON-lines file, of which a share is held out for development; or a folder with files called
        train.*, dev.* and test.*.
    out
        The run folder: model, tokenizer, recipe, metrics, report, checkpoints.
    from_scratch
        Keep the model's architecture and vocabulary, but start from fresh weights.
    """
    if task == "glue":
        from osbert.commands.finetune_glue import Glue

        def checked(one: str, data: Path) -> object:
            return load(read_plan(one, settings, model=model, data=data, from_scratch=from_scratch).task, SPLITS)

        def tuned(one: str, data: Path, out: Path) -> None:
            finetune(one, *settings, model=model, data=data, out=out, from_scratch=from_scratch)

        Glue(check=checked, tune=tuned).run(data, out)
        return
    plan = read_plan(task, settings, model=model, data=data, from_scratch=from_scratch)
    fitted, records = load(plan.task, SPLITS)
    tell_data(fitted, records)
    train(dataclasses.replace(plan, task=fitted), records, out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """All settings of a run. `task` goes into the recipe under its own name."""

    task: Task
    path: str
    model: Path
    from_scratch: bool
    training: Any
    optimizer: Any

    def table(self) -> dict[str, Any]:
        """Return the resolved recipe as it is saved with the run."""
        return {
            "task": self.path,
            "model": str(self.model),
            "from_scratch": self.from_scratch,
            "training": recipe.as_table(self.training),
            "optimizer": recipe.as_table(self.optimizer),
            self.task.name: recipe.as_table(self.task),
        }


def read_plan(task: str, settings: Sequence[str], *, model: Path, data: Path, from_scratch: bool) -> Plan:
    """Return the settings of a run: the defaults, under what the command line says.

    Raises UserError at an unknown task or setting, and where the task's columns cannot be found.
    """
    wanted = schema(task)
    name = task.rpartition(".")[2]
    table = recipe.override({name: {"data": str(data)}}, settings, schema=wanted)
    built: Any = recipe.build(wanted, table, where="The command line")
    chosen: Task = getattr(built, name)
    return Plan(
        task=chosen.resolved(),
        path=task,
        model=model,
        from_scratch=from_scratch,
        training=built.training,
        optimizer=built.optimizer,
    )


def schema(task: str) -> type:
    """Return the dataclass of all settings, with the task's under its own name; UserError at an unknown task."""
    from osbert.commands.finetune_run import FinetuneOptimizer, FinetuneSettings

    kind = components.find("tasks", task, base=Task)
    parts: list[Any] = [
        ("training", FinetuneSettings),
        ("optimizer", FinetuneOptimizer),
        (task.rpartition(".")[2], kind),
    ]
    return dataclasses.make_dataclass("Recipe", parts, frozen=True, kw_only=True)


def tell_data(task: Task, records: Mapping[str, Sequence[Record]]) -> None:
    """Print what was found in the data: the form of each file, the columns, the rows, the labels."""
    for line in task.findings():
        print(line)
    for split, found in records.items():
        print(f"{split}: {task.describe(found)}", flush=True)


def train(plan: Plan, records: dict[str, list[Record]], out: Path) -> Epoch:
    """Fine-tune to the end, write the run folder, and return the best epoch."""
    from osbert.commands.finetune_run import Epoch, Finetuning, fingerprint, read_model
    from osbert.lock import locked
    from osbert.training.checkpoint import reason
    from osbert.training.run_folder import RunFolder

    wanted = plan.training
    model = read_model(
        plan.model,
        from_scratch=plan.from_scratch,
        seed=wanted.seed,
        dropout=wanted.dropout,
        recurrent=wanted.recurrent,
    )
    tell_model(plan, model)
    # Made before anything is written: what cannot be leaves no folder behind.
    run = Finetuning(
        model=model, task=plan.task, records=records, settings=wanted, optimizer=plan.optimizer, folder=out
    )
    facts = {
        "osbert": __version__,
        "command": "finetune",
        "rows": fingerprint(records),
        "tokenizer": model.tokenizer.fingerprint,
    }
    try:
        with locked(out):
            folder = RunFolder(out)
            folder.begin(plan.table(), facts, inputs=("command", "rows", "tokenizer"))
            write_remarks(records, out)
            if not folder.finished:
                complete(run, plan, folder)
            run.tidy()
            best = Epoch(**folder.facts["finished"]["best"])
    except OSError as error:
        if not disk_full(error):
            raise
        again = "Make room and give the same command again; it goes on from the last checkpoint"
        raise UserError(f"{out} could not be written: {reason(error, out)}. {again}.") from error
    tell_end(best, out, plan.task.sample)
    return best


def write_remarks(records: Mapping[str, Sequence[Record]], out: Path) -> None:
    """Write what was mended or is amiss in the data into the run folder, one record a line, and say how many."""
    remarks = [f"{record.place}: {record.remark}" for found in records.values() for record in found if record.remark]
    if remarks:
        write_text(out / REMARKS, "\n".join(remarks) + "\n")
        print(f"{len(remarks):,} records were mended or cannot be used; they are listed in {out / REMARKS}")


def complete(run: Finetuning, plan: Plan, folder: RunFolder) -> None:
    """Train to the end and write the model and the report; that it is finished is noted last."""
    from osbert.commands.finetune_report import finetuning_report
    from osbert.commands.finetune_run import truncation

    if cut := truncation(run):
        print(cut)
    if kept := run.prepare():
        print(kept, flush=True)
    if run.trainer.resume():
        print(f"going on from step {run.trainer.step:,} of {run.trainer.settings.steps:,}")
    follow(run, plan)
    run.finish()
    folder.write_recipe(dataclasses.replace(plan, task=run.tuned).table())
    best = dataclasses.asdict(run.best)
    finetuning_report(run.folder, name=plan.path, best=best)
    folder.finish({"best": best, "processor": str(run.trainer.processor)})


def follow(run: Finetuning, plan: Plan) -> None:
    """Train, showing progress and each epoch's scores; a signal stops after a checkpoint has been written.

    SIGTERM then ends the process with status 0, as it does in pretraining; Ctrl-C is a KeyboardInterrupt.
    """
    from rich.console import Console

    from osbert.training.interruption import Interruption
    from osbert.training.progress import Progress
    from osbert.training.tracking import Metrics, ProgressLine

    trainer = run.trainer
    metrics = Metrics(run.folder, every=plan.training.log_every, memory=trainer.memory)
    metrics.go_back(trainer.step)
    console, processor = Console(), str(trainer.processor)
    line = ProgressLine(console, processor=processor, done=trainer.step, steps=trainer.settings.steps)
    with Interruption() as wish, line:
        for event in run.run():
            if isinstance(event, Progress):
                line.step(event, metrics.step(event))
            else:
                metrics.write({"step": event.step, "epoch": event.epoch, "train.loss": event.loss} | named(event))
                line.say(row(event) + ("  best so far" if event.best else ""))
            while trainer.notices:
                line.say(trainer.notices.pop(0))
            between = not isinstance(event, Progress) or not run.ends_epoch(event)
            if wish.signal and between and not trainer.finished:
                trainer.save()
                line.say(f"stopped after step {trainer.step:,}; the same command goes on from there")
                raise KeyboardInterrupt if wish.signal == signal.SIGINT else SystemExit(0)


def named(epoch: Epoch) -> dict[str, float]:
    """Return the scores under the names they have in metrics.jsonl."""
    return {f"dev.{name}": value for name, value in epoch.metrics.items()}


def row(epoch: Epoch) -> str:
    """Return one line on an epoch; scores of single classes ("f1/label") are left for the end."""
    scores = "  ".join(f"{name} {value:.4f}" for name, value in epoch.metrics.items() if "/" not in name)
    return f"epoch {epoch.epoch}  training loss {epoch.loss:.4f}  dev {scores}"


def tell_model(plan: Plan, model: Model) -> None:
    """Print what is fine-tuned, and what was odd about it."""
    from osbert.interop.huggingface import closed_to_others

    sizes = model.backbone.architecture
    start = "its sizes with fresh weights" if plan.from_scratch else "pretrained weights"
    above = f" and {sizes.recurrent} recurrent" if sizes.recurrent else ""
    print(f"model: {plan.model}, {sizes.layers} layers{above} of {sizes.width}, {start}")
    if closed := closed_to_others(sizes):
        print(f"  {closed}")
    for remark in model.remarks:
        print(f"  {remark}")


def tell_end(best: Epoch, out: Path, sample: str) -> None:
    """Print the best epoch, with the scores of every class, and what to do with the run: `sample` is a text to try."""
    print(f"best: {row(best)}; its weights are in {out}")
    classes = {name.partition("/")[2]: value for name, value in best.metrics.items() if name.startswith("f1/")}
    if classes:
        print("F1 of each class: " + ", ".join(f"{name} {value:.4f}" for name, value in classes.items()))
    print(f"try: osbert predict {out} {sample}", flush=True)
