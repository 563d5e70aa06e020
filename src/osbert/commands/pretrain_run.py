"""One pretraining run, from where it stands to its end: the learner, the loop with its looks aside, the run folder."""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from rich.console import Console

from osbert import recipe
from osbert.analysis.report import pretraining_report
from osbert.commands.pretrain_settings import Plan
from osbert.data.step import Cursor, Loader, Step
from osbert.errors import UserError
from osbert.files import disk_full
from osbert.interop.huggingface import write_model
from osbert.interop.tokenizer_files import write_tokenizer
from osbert.models.heads import Learner
from osbert.training.checkpoint import reason
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import Metrics, ProgressLine
from osbert.training.trainer import Trainer

LATER = Cursor(epoch=2**20)
"""Where the steps on long sequences begin: epochs with an order and masks of their own."""
INPUTS = ("corpus", "tokenizer")


class Phases:
    """Steps of one loader up to a certain step of the run, and of another from there on."""

    def __init__(self, first: Loader, second: Loader, *, switch: int, step: Callable[[], int]) -> None:
        """Change to the second at step `switch`; `step()` tells how many have been taken."""
        self.first = first
        self.second = second
        self.switch = switch
        self.step = step

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Yield the steps from `cursor` on, which belongs to the loader whose turn it was."""
        done = self.step()
        if done < self.switch:
            yield from itertools.islice(self.first.steps(cursor), self.switch - done)
        yield from self.second.steps(cursor if done > self.switch else LATER)


class Run:
    """Trains what a plan says into a folder and tells about it on a console; a wish to stop ends it in good order."""

    def __init__(self, plan: Plan, out: Path, console: Console, wish: Interruption) -> None:
        """Prepare; nothing is built or written yet."""
        self.plan = plan
        self.out = out
        self.folder = RunFolder(out)
        self.console = console
        self.wish = wish
        self.notices: list[str] = []

    def complete(self) -> int:
        """Begin the run or go on with it, up to its end; return the exit status, 0 unless Ctrl-C stopped it.

        Raises UserError when the folder belongs to another run, and when the disk is too full to begin or to end.
        """
        try:
            return self._complete()
        except OSError as error:
            if not disk_full(error):
                raise
            raise UserError(
                f"{self.out} could not be written: {reason(error, self.out)}. Make room and give the same command "
                "again; it goes on from the last checkpoint."
            ) from error

    def _complete(self) -> int:
        self.folder.begin(recipe.as_table(self.plan.settings), self.plan.facts(), inputs=INPUTS)
        if self.folder.finished:
            if not self._report().exists():
                pretraining_report(self.out)
            self._say(f"The run in {self.out} is finished; nothing is left to do. Its report is {self._report()}.")
            return 0
        write_tokenizer(self.plan.tokenizer, self.out, length=self.plan.settings.model.length)
        trainer = self._trainer()
        metrics = Metrics(self.out, every=trainer.settings.log_every, memory=trainer.memory)
        if trainer.resume():
            self._say(f"Going on from the checkpoint of step {trainer.step:,}.")
        metrics.go_back(trainer.step)
        self._loop(trainer, metrics)
        if not trainer.finished:
            return self._stopped(trainer)
        self._finish(trainer, metrics)
        return 0

    def _trainer(self) -> Trainer:
        settings, plan = self.plan.settings, self.plan
        self.learner = build_learner(plan)
        self.loader = plan.loader(length=settings.data.length)
        loader: Loader = self.loader
        if settings.data.long_share:
            switch = round((1 - settings.data.long_share) * settings.training.steps)
            longer = plan.loader(length=settings.data.long_length)
            loader = Phases(self.loader, longer, switch=switch, step=lambda: trainer.step)
        trainer = Trainer(self.learner, loader, settings.optimizer, settings.training, self.out)
        self._introduce(trainer)
        return trainer

    def _introduce(self, trainer: Trainer) -> None:
        settings, corpus = self.plan.settings, self.plan.corpus
        parameters = sum(weight.numel() for weight in self.learner.parameters())
        self._say(
            f"{parameters:,} parameters, {' + '.join(self.plan.objectives)}, on {corpus.documents:,} documents "
            f"({corpus.tokens:,} tokens, {len(self.plan.tokenizer):,} pieces): {settings.training.steps:,} steps of "
            f"{settings.data.batch:,} sequences of at most {settings.data.length:,} tokens, {trainer.processor}"
        )
        needed = 12 * parameters * (settings.training.keep + 1) + 4 * parameters  # weights and two moments each
        free = shutil.disk_usage(self.out).free
        if settings.training.checkpoint_every and free < needed:
            self._notice(
                f"{self.out} has {free / 1e6:,.0f} MB of free disk, but checkpoints and the model may take "
                f"{needed / 1e6:,.0f} MB. A checkpoint that cannot be written is told, and the one before is kept."
            )

    def _loop(self, trainer: Trainer, metrics: Metrics) -> None:
        every = trainer.settings.evaluate_every
        held_out = self.loader.held_out()
        shown = ProgressLine(
            self.console, processor=str(trainer.processor), done=trainer.step, steps=trainer.settings.steps
        )
        with shown:
            self._pass_on(trainer)
            for progress in trainer.run():
                shown.step(progress, metrics.step(progress))
                due = trainer.finished or (every and progress.step % every == 0)
                if due and held_out:
                    shown.held_out(metrics.held_out(progress.step, trainer.evaluate(held_out)))
                self._pass_on(trainer)
                if self.wish.signal is not None and not trainer.finished:
                    trainer.save()
                    break
        self._pass_on(trainer)

    def _stopped(self, trainer: Trainer) -> int:
        last = max(trainer.checkpoints.steps(), default=0)
        self._say(
            f"Stopped after step {trainer.step:,} of {trainer.settings.steps:,}. "
            f"The same command goes on from step {last:,}."
        )
        return 130 if self.wish.signal == signal.SIGINT else 0

    def _finish(self, trainer: Trainer, metrics: Metrics) -> None:
        if not trainer.sound:
            raise UserError(
                "The weights have become infinite or undefined, so no model was written. Take a lower learning rate, "
                "and another folder."
            )
        write_model(self.learner.cpu(), self.out)
        parameters = sum(weight.numel() for weight in self.learner.parameters())
        self.folder.finish({"processor": str(trainer.processor), "parameters": parameters})
        pretraining_report(self.out)
        for notice in self.notices:
            self._say(f"Remember: {notice}")
        if metrics.unwritten:
            self._say(f"{len(metrics.unwritten)} lines of {metrics.path} could not be written.")
        self._say(f"The model is in {self.out}; how it went is in {self._report()}.")

    def _report(self) -> Path:
        return self.out / "report.html"

    def _pass_on(self, trainer: Trainer) -> None:
        while trainer.notices:
            self._notice(trainer.notices.pop(0))

    def _notice(self, message: str) -> None:
        self.notices.append(message)
        self._say(message)

    def _say(self, message: str) -> None:
        self.console.print(message, markup=False, highlight=False, soft_wrap=True)


def build_learner(plan: Plan) -> Learner:
    """Return the learner with its first weights, which follow from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.settings.training.seed)
        backbone = plan.settings.model.build()
        heads = {name: objective.head(backbone) for name, objective in plan.objectives.items()}
    for name, objective in plan.objectives.items():
        objective.begin(heads[name], plan.corpus.counts)
    return Learner(backbone, heads)
