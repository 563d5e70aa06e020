"""One fine-tuning into its run folder: begun or gone on with, shown as it goes, and its end noted last."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from osbert import __version__, components, recipe
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.evaluation.score import class_scores
from osbert.files import disk_full, write_text
from osbert.interop.hub import hub_facts
from osbert.interop.huggingface.folders import closed_to_others
from osbert.interop.tuned_files import BASE, TUNED
from osbert.interop.weight_files import read_json
from osbert.lock import locked
from osbert.runs.finetune.collapse import advice
from osbert.runs.finetune.model import Model, read_model
from osbert.runs.finetune.plan import Plan, Settings
from osbert.runs.finetune.report import finetuning_report
from osbert.runs.finetune.rows import Lessons, Part, Rows
from osbert.runs.finetune.run import Epoch, Finetuning
from osbert.runs.finetune.tuning import describe as learning
from osbert.tasks import Record, Task
from osbert.tasks.calibration import Calibration
from osbert.terminal import one_line, open_console
from osbert.training.checkpoint import reason
from osbert.training.interruption import Interruption
from osbert.training.progress import Progress
from osbert.training.run_folder import RECIPE, RunFolder
from osbert.training.tracking import Metrics, ProgressLine

REMARKS = "remarks.txt"
"""The list of what was mended or is amiss in the data, in a run's folder."""


def start(plan: Settings) -> Model:
    """Return the encoder that a run starts from."""
    return read_model(plan.model, plan.training, from_scratch=plan.from_scratch, opening=plan.opening)


def lay_out(plan: Plan, records: Mapping[str, Sequence[Record]], model: Model) -> Rows:
    """Return the rows as a model reads them, and print where that takes fewer tokens than the task's length."""
    longest = model.backbone.architecture.length
    length = min(plan.task.length, longest)
    if length < plan.task.length:
        print(f"length: {longest:,} tokens, which is all that the model reads, not {plan.task.length:,}")
    return Rows.of(plan.task, records, Packer(tokenizer=model.tokenizer, length=length))


def train(plan: Settings, rows: Lessons, model: Model, out: Path) -> Epoch:
    """Fine-tune to the end, write the run folder, and return the best epoch."""
    # Made before anything is written: what cannot be leaves no folder behind.
    run = Finetuning(model=model, rows=rows, settings=plan.training, optimizer=plan.optimizer, folder=out)
    with writing(out):
        folder = opened(plan, rows, out)
        write_remarks(rows.remarks, out)
        if not folder.finished:
            try:
                complete(run, plan, folder)
            except UserError:
                if run.trainer.hopeless:
                    folder.fail(run.trainer.step)
                raise
        run.tidy()
        return Epoch(**folder.facts["finished"]["best"])


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Hold the run folder; a full disk is told with what to do."""
    try:
        with locked(out):
            yield
    except OSError as error:
        if not disk_full(error):
            raise
        again = "Make room and give the same command again; it goes on from the last checkpoint"
        raise UserError(f"{out} could not be written: {reason(error, out)}. {again}.") from error


def opened(plan: Settings, rows: Lessons, out: Path) -> RunFolder:
    """Return the folder of a run, begun now or before; UserError when it holds another one."""
    facts = {
        "osbert": __version__,
        "command": "finetune",
        "rows": rows.fingerprint,
        "tokenizer": rows.tokenizer.fingerprint,
        **hub_facts(plan.model),
    }
    folder = RunFolder(out)
    folder.begin(plan.table(), facts, inputs=("command", "rows", "tokenizer"))
    return folder


def write_remarks(remarked: Iterable[str], out: Path) -> None:
    """Write what was mended or is amiss in the data into the run folder, one record a line, and say how many."""
    remarks = list(remarked)
    if remarks:
        write_text(out / REMARKS, "\n".join(remarks) + "\n")
        print(f"{len(remarks):,} records were mended or cannot be used; they are listed in {out / REMARKS}")


def complete(run: Finetuning, plan: Settings, folder: RunFolder) -> None:
    """Train to the end and write the model and the report; that it is finished is noted last."""
    if share := learning(run.learner.backbone):
        print(share)
    if cut := run.rows.truncation:
        print(cut)
    if kept := run.prepare():
        print(kept, flush=True)
    if run.trainer.resume():
        print(f"going on from step {run.trainer.step:,} of {run.trainer.settings.steps:,}")
    if before := run.before():
        print(f"before training  dev {told(before)}", flush=True)
    follow(run, plan)
    # A folder is begun before anything is written into it: else it would be taken for somebody else's.
    folders = {
        part.folder: opened(plan.of(part.task), run.rows, run.folder / part.folder) for part in run.parts if part.folder
    }
    run.finish()
    ended: dict[str, Any] = {"best": dataclasses.asdict(run.best), "processor": str(run.trainer.processor)}
    ended |= {"before": before} if before else {}
    finetuning_report(run.folder, name=plan.path, best=ended["best"], parts=run.parts)
    for part in run.parts:
        close(part, folders.get(part.folder, folder), plan, ended)
    if folders:
        folder.finish(ended)


def close(part: Part, folder: RunFolder, plan: Settings, ended: Mapping[str, Any]) -> None:
    """Note that the run of a task is finished: its recipe with what it has learnt, and its facts."""
    folder.write_recipe(plan.of(part.task).table())
    calibration = {"calibration": part.calibration.as_dict()} if part.calibration else {}
    folder.finish({**ended, "best": part.scores(ended["best"]), **calibration})


def follow(run: Finetuning, plan: Settings) -> None:
    """Train, showing progress and each epoch's scores; a signal stops after a checkpoint has been written.

    SIGTERM then ends the process with status 143, as it does in pretraining; Ctrl-C is a KeyboardInterrupt.
    """
    trainer = run.trainer
    metrics = Metrics(run.folder, every=plan.training.log_every, memory=trainer.memory)
    metrics.go_back(trainer.step)
    console, processor = open_console(), str(trainer.processor)
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
            if wish.signal and between:  # after the last step too: later code does not check for the signal
                trainer.save()
                line.say(f"stopped after step {trainer.step:,}; the same command goes on from there")
                raise KeyboardInterrupt if wish.signal == signal.SIGINT else SystemExit(wish.status)


def named(epoch: Epoch) -> dict[str, float]:
    """Return the scores under the names they have in metrics.jsonl."""
    return {f"dev.{name}": value for name, value in epoch.metrics.items()}


def row(epoch: Epoch) -> str:
    """Return one line on an epoch; scores of single classes ("f1/label") are left for the end."""
    return f"epoch {epoch.epoch}  training loss {epoch.loss:.4f}  dev {told(epoch.metrics)}"


def told(metrics: Mapping[str, float]) -> str:
    """Return scores in a line, without those of single classes."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items() if "/" not in name)


def tell_model(plan: Settings, model: Model) -> None:
    """Print what is fine-tuned, and what was odd about it."""
    sizes = model.backbone.architecture
    start = "its sizes with fresh weights" if plan.from_scratch else "pretrained weights"
    recurrent = getattr(sizes, "recurrent", 0)
    above = f" and {recurrent} recurrent" if recurrent else ""
    print(f"model: {plan.model}, {sizes.layers} layers{above} of {sizes.width}, {start}")
    if closed := closed_to_others(sizes):
        print(f"  {closed}")
    for remark in model.remarks:
        print(f"  {one_line(remark)}")
    if before := stage_before(plan.model):
        print(f"  it was fine-tuned for {before}: its encoder goes on from there, the task's own layer is a new one")


def stage_before(model: Path) -> str:
    """Return the task that the model itself was fine-tuned for, "" for none: then this is the second stage."""
    path = model / RECIPE
    return str(recipe.read(path).get("task", "")) if path.is_file() else ""


def tell_end(best: Epoch, out: Path, task: Task) -> None:
    """Print the best epoch, with the scores of every class, and what to do with the run."""
    if before := RunFolder(out).facts["finished"].get("before"):
        print(f"before training: dev {told(before)}")
    print(f"best: {row(best)}; its weights are in {out}")
    if best.collapsed:
        settings = recipe.read(out / RECIPE)
        steps = best.step // best.epoch * settings["training"]["epochs"]
        print(f"it has collapsed: every development row is {one_line(best.collapsed)}. {advice(settings, steps=steps)}")
    if classes := class_scores(task, best.metrics):
        print("F1 of each class: " + ", ".join(f"{one_line(name)} {score}" for name, score in classes.items()))
    if calibration := RunFolder(out).facts["finished"].get("calibration"):
        print(Calibration(**calibration).describe())
    if (out / TUNED).is_file():
        size, base = (out / TUNED).stat().st_size / 1e6, read_json(out / BASE)["path"]
        print(f"{out} holds only what was tuned ({size:.1f} MB) and needs {base}; --merge writes a whole model")
    trust = " --trust" if components.is_dotted(stage_before(out)) else ""
    print(f"try: osbert predict {out} {task.sample}{trust}", flush=True)
