"""One pretraining run, started or resumed: the learner, the training loop with evaluations, the run folder."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from torch import Tensor

from osbert import recipe
from osbert.data.batch import Batch, write_batches
from osbert.data.pace import Phases
from osbert.errors import UserError
from osbert.files import disk_needed
from osbert.interop.huggingface.folders import osbert_only_reason, write_model
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.models.contract import Learner
from osbert.reports.page import pretraining_report
from osbert.runs.contract import Notice, Watch
from osbert.runs.events import Measurement, TrainingStart
from osbert.runs.pretrain.clock import PacedLoader, RunClock
from osbert.runs.pretrain.first_weights import build_learner, first_weights, forgotten, other_text
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.runs.pretrain.start import KEPT_OUT
from osbert.training import memory, tensors
from osbert.training.distributed import ALONE, Group, PeerFailure
from osbert.training.interruption import Interruption, StopRequest
from osbert.training.parallel import Alone
from osbert.training.processor import too_few_devices
from osbert.training.progress import Mean
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import HELD_OUT, Metrics, SilentMetrics, TrackerQueue
from osbert.training.trainer import Trainer, TrainingSettings

INPUTS = ("corpus", "tokenizer", "origin")
PASSES = "micro_tokens"
"""Key in the trainer's memory: the setting data.micro_tokens."""
MODELS = "models"
"""Subfolder of the intermediate models (training.models_every)."""
LOWEST, ENDED = "lowest", "ended"
"""Keys in the trainer's memory: the lowest losses on other text, and why the run ended early."""
OWED = "owed"
"""Key in the trainer's memory: an evaluation was interrupted, and is done first when the run resumes."""


class PretrainingRun:
    """Trains by a plan into a folder and reports to `watch`. A `wish` to stop ends it after a checkpoint."""

    def __init__(self, plan: PretrainPlan, out: Path, watch: Watch, wish: Interruption, group: Group = ALONE) -> None:
        """Prepare without building or writing anything. In a group only the first process writes."""
        self.group = group
        self.plan = plan
        self.out = out
        self.folder = RunFolder(out)
        self.watch = watch
        self.wish = wish
        self.notices: list[str] = []
        self.changes: list[str] = []
        """Changed settings of a resumed run that had failed (diverged) with the earlier ones."""
        self.settled = -1
        """The last step that is complete: its evaluation is recorded, too, so a checkpoint may be written."""
        self.clock: RunClock | None = None
        self.resumed = False

    def complete(self) -> bool:
        """Start or resume the run; return True if it finished, False if a wish stopped it.

        Raises UserError if the folder belongs to another run, and if disk or memory do not suffice.
        """
        with disk_needed(self.out), memory.explain_shortage("this run", "Free some, or take a smaller model."):
            return self._complete()

    def _complete(self) -> bool:
        if impossible := too_few_devices(self.plan.settings.training.device, self.group.size):
            self.group.end(impossible, code="unavailable-device")
        if self.group.first(self._begin):
            return True
        trainer = self._trainer()
        if trainer.resume():
            self._say(f"Going on from the checkpoint of step {trainer.step:,}.")
        self._adapt(trainer)
        if self.plan.budget is not None:
            self.clock = RunClock(self.plan, trainer, self.paced, self.group)
        try:
            with contextlib.closing(self.group.each(partial(self._metrics, trainer))) as metrics:
                metrics.go_back(trainer.step)
                self._loop(trainer, metrics)
        except UserError as error:
            if trainer.hopeless:
                raise self._record_failure(trainer, str(error)) from error
            raise
        finally:
            # An error may explain itself by an earlier notice, and a tracker may fail as it ends.
            self._pass_on(trainer)
        if not _over(trainer) or OWED in trainer.memory:
            self._say_stopped(trainer)
            return False
        self._finish(trainer, metrics)
        return True

    def _begin(self) -> bool:
        """Write run.json, recipe and tokenizer; return whether the run is finished already."""
        settings, self.resumed = self.plan.settings, self.folder.begun
        self.changes = self.folder.begin(
            recipe.as_table(settings), self.plan.facts(), inputs=INPUTS, defaults=recipe.defaults(type(settings))
        )
        if self.folder.finished:
            if not self._report().exists():
                pretraining_report(self.out, self.plan.objectives)
            self._say(f"The run in {self.out} is finished; nothing is left to do. Its report is {self._report()}.")
            return True
        self._write_tokenizer(self.out)
        return False

    def _write_tokenizer(self, folder: Path) -> None:
        sizes = self.plan.settings.model
        write_any_tokenizer(self.plan.tokenizer, folder, length=sizes.length, segments=sizes.segments)

    def _trainer(self) -> Trainer:
        settings, plan = self.plan.settings, self.plan
        self.learner, fresh = first_weights(plan)
        self.loader = plan.loader(length=settings.data.length).part(self.group.part)
        loader: PacedLoader = self.loader
        longer = self.loader
        if settings.data.long_share:
            switch = round((1 - settings.data.long_share) * settings.training.steps)
            longer = plan.loader(length=settings.data.long_length).part(self.group.part)
            loader = Phases(self.loader, longer, switch=switch)
        parameters = sum(weight.numel() for weight in self.learner.parameters())
        self.paced = loader
        trainer = Trainer(self.learner, loader, settings.optimizer, settings.training, self.out, self.group)
        self.loader.notices = longer.notices = trainer.notices
        self._introduce(trainer, parameters)
        self._say_of_origin(fresh)
        return trainer

    def _metrics(self, trainer: Trainer) -> Metrics | SilentMetrics:
        """Return the writer of metrics; in a group only the first process writes."""
        if self.group.rank:
            return SilentMetrics()
        queue = TrackerQueue(self.out, trainer.settings.track, trainer.notices)
        return Metrics(self.out, every=trainer.settings.log_every, memory=trainer.memory, queue=queue)

    def _adapt(self, trainer: Trainer) -> None:
        """Apply and report settings that have changed since the run was stopped."""
        changes, passes = self.group.gather(self.changes, "changes")[0], self.plan.settings.data.micro_tokens
        if changes:
            trainer.counters.unusable = 0
            self._notice(f"From step {trainer.step + 1:,} on other settings hold: {'; '.join(changes)}.")
        before = trainer.memory.get(PASSES, passes)
        if before != passes:
            trainer.counters.halvings = 0
            self._notice(
                f"From step {trainer.step + 1:,} on data.micro_tokens is {passes:,} instead of {before:,}: the "
                "gradients are the same, to rounding; dropout draws other numbers."
            )
        trainer.memory[PASSES] = passes

    def _introduce(self, trainer: Trainer, parameters: int) -> None:
        settings, corpus = self.plan.settings, self.plan.corpus
        device = str(trainer.processor)
        objectives = (
            f"{objective.weight:g} x " * (objective.weight != 1) + name
            for name, objective in self.plan.objectives.items()
        )
        if self.group.size > 1:
            device += f", {self.group.size} processes ({settings.training.parallel})"
        self._say(
            f"{parameters:,} parameters, {' + '.join(objectives)}, on {corpus.documents:,} documents "
            f"({corpus.tokens:,} tokens, {len(self.plan.tokenizer):,} pieces): {settings.training.steps:,} steps of "
            f"{settings.data.batch:,} sequences of at most {settings.data.length:,} tokens, {device}"
        )
        for course in filter(None, (objective.course() for objective in self.plan.objectives.values())):
            self._say(course)
        needed = disk_bytes(parameters, settings.training)
        free = shutil.disk_usage(self.out).free
        if settings.training.checkpoint_every and free < needed:
            self._notice(
                f"{self.out} has {free / 1e6:,.0f} MB of free disk, but checkpoints and the model may take "
                f"{needed / 1e6:,.0f} MB. A checkpoint that cannot be written is reported, and the one before is kept."
            )

    def _say_of_origin(self, fresh: Sequence[str]) -> None:
        if self.plan.origin is not None and fresh:
            names = (f"the head of {name}" if name in self.plan.objectives else f"the {name}" for name in fresh)
            self._say(f"{self.plan.origin.folder} has no weights for {' and '.join(names)}: new ones.")
        for remark in self.plan.remarks:
            self._say(remark)

    def _loop(self, trainer: Trainer, metrics: Metrics | SilentMetrics) -> None:
        held_out, others = self.loader.make_held_out(), self._other_text()
        self.watch(TrainingStart(processor=str(trainer.processor), done=trainer.step, steps=trainer.pace.steps))
        self._pass_on(trainer)
        self.settled = trainer.step
        if others and not trainer.step:
            trainer.memory[OWED] = True
        try:
            self._steps(trainer, metrics, partial(self._evaluate, trainer, metrics, held_out, others))
        except KeyboardInterrupt:
            if trainer.whole and self.settled == trainer.step and self.group.size == 1 and not self.wish.signal:
                trainer.save()
            raise
        if OWED in trainer.memory or not trainer.finished:
            trainer.save()

    def _steps(self, trainer: Trainer, metrics: Metrics | SilentMetrics, evaluate: Callable[[], None]) -> None:
        """Take the remaining steps, or those before a wish to stop."""
        every, models = trainer.settings.evaluate_every, trainer.settings.models_every
        if OWED in trainer.memory:
            evaluate()
        if OWED in trainer.memory or _over(trainer):
            return
        # Closed here and not when it is collected: a checkpoint in the background is whole before the lock is given up.
        with contextlib.closing(trainer.run()) as steps:
            for progress in steps:
                line = metrics.step(progress)
                if self.clock is not None and self.clock.correct() and self.clock.is_news():
                    self._say(f"From step {trainer.step:,} on there are {trainer.pace.steps:,} steps, to end in time.")
                if due := trainer.finished or (every and progress.step % every == 0):
                    trainer.memory[OWED] = True
                if models and progress.step % models == 0:
                    self._keep_model(trainer)
                self.settled = trainer.step
                self.watch(progress)
                if line is not None:
                    self.watch(Measurement(of="training", values=line))
                if due:
                    evaluate()
                self._pass_on(trainer)
                if ENDED in trainer.memory or (self._stop_wished() and not trainer.finished):
                    break  # after the last step the trainer goes on to its checkpoint

    def _evaluate(
        self,
        trainer: Trainer,
        metrics: Metrics | SilentMetrics,
        held_out: Sequence[Batch],
        others: Mapping[str, Sequence[Batch]],
    ) -> None:
        """Evaluate on the held-out text and on other text; end the run if the latter is forgotten too much.

        A wish to stop interrupts it, as it may take as long as many steps; it is then owed (OWED). In a group it is not
        interrupted, since all processes must do the same.
        """
        trainer.memory[OWED] = True
        texts = {HELD_OUT: held_out} if self.loader.held else {}
        texts |= {name: batches[self.group.rank :: self.group.size] for name, batches in others.items()}
        try:
            with self.wish.at_once() if self.group.size == 1 else contextlib.nullcontext():
                means = {name: trainer.evaluate(batches) for name, batches in texts.items()}
        except StopRequest:
            return
        # Until the results are written, an interruption must not save this step as complete.
        self.settled = -1
        lines = [
            Measurement(of=name, values=metrics.record_held_out(trainer.step, text_means, of=name))
            for name, text_means in means.items()
        ]
        self._end_if_forgetting(trainer, {name: means[name] for name in others})
        del trainer.memory[OWED]
        self.settled = trainer.step
        for line in lines:
            self.watch(line)

    def _end_if_forgetting(self, trainer: Trainer, means: Mapping[str, Mapping[str, Mean]]) -> None:
        """End the run if a loss on other text is above its lowest value by more than the setting `forgetting`."""
        limit = self.plan.settings.forgetting
        losses = {
            f"{of}.{name}.loss": mean.loss for of, text_means in means.items() for name, mean in text_means.items()
        }
        if limit is None or not losses:
            return
        name, rise = forgotten(losses, trainer.memory.setdefault(LOWEST, {}))
        if rise > limit and not trainer.finished:
            trainer.memory[ENDED] = (
                f"The run ended at step {trainer.step:,} of {trainer.pace.steps:,}: {name} rose by {rise:.3f} "
                f"nats, more than forgetting = {limit:g} allows."
            )

    def _other_text(self) -> dict[str, list[Batch]]:
        """Return the batches of other text; give a notice if an encoder to train further has none."""
        batches = other_text(self.plan)
        if self.plan.origin is not None and not batches:
            self._notice(
                f"{self.plan.origin.folder} keeps no held-out text ({KEPT_OUT}), so what is forgotten of the text it "
                "was trained on cannot be measured."
            )
        return batches

    def _stop_wished(self) -> bool:
        """Return whether any process has received a signal to stop. All processes stop after the same step."""
        wishes = [number for number in self.group.gather(self.wish.signal, "wishes to stop") if number is not None]
        if wishes:
            self.wish.signal = wishes[0]
        return bool(wishes)

    def _record_failure(self, trainer: Trainer, reason: str) -> UserError:
        """Record that the run diverged, as the same command would again; return the error with advice."""
        self.folder.fail(trainer.step)
        whole = trainer.checkpoints.steps()
        rate = self.plan.settings.optimizer.learning_rate
        advice = (
            f"To go on in {self.out}, give the command with a lower --learning-rate (now {rate:g}), a longer --warmup, "
            f"a smaller --clip, --precision fp32 or another --training.seed. That starts from "
            f"{f'the checkpoint of step {whole[-1]:,}' if whole else 'the beginning'}"
        )
        if len(whole) > 1:
            newest = trainer.checkpoints.path(whole[-1])
            advice += f", or from that of step {whole[-2]:,} if you remove {newest} before"
        return UserError(f"{reason} {advice}.", code="training-diverged")

    def _say_stopped(self, trainer: Trainer) -> None:
        last = max(trainer.checkpoints.steps(), default=0)
        self._say(
            f"Stopped after step {trainer.step:,} of {trainer.pace.steps:,}. "
            f"The same command goes on from step {last:,}."
        )

    def _finish(self, trainer: Trainer, metrics: Metrics | SilentMetrics) -> None:
        if not trainer.sound:
            if self.group.rank:
                raise PeerFailure
            raise self._record_failure(
                trainer, "The weights have become infinite or undefined, so no model was written."
            )
        weights = tensors.weights(self.learner, trainer.parallel)
        self.group.first(lambda: self._conclude(trainer, metrics, weights))

    def _conclude(self, trainer: Trainer, metrics: Metrics | SilentMetrics, weights: Mapping[str, Tensor]) -> None:
        """Write the model with these weights and the report, and report where they are."""
        learner = self.learner
        if not isinstance(trainer.parallel, Alone):  # then each process has but a share of every weight
            learner = self._copy(weights)
        assert isinstance(metrics, Metrics)  # that of the first process
        metrics.settle()
        self._write(self.out, learner.cpu())
        if held_out := self.plan.loader(length=self.plan.settings.data.length).make_held_out():
            write_batches(self.out / KEPT_OUT, held_out)
        parameters = sum(weight.numel() for weight in learner.parameters())
        taken = self.plan.timing_facts(resumed=self.resumed)
        if ended := trainer.memory.get(ENDED):
            taken[ENDED] = ended
            self._say(ended)
        self.folder.finish({"processor": str(trainer.processor), "parameters": parameters, **taken})
        pretraining_report(self.out, self.plan.objectives)
        for notice in self.notices:
            self._say(f"Remember: {notice}")
        if metrics.unwritten:
            self._say(f"{len(metrics.unwritten)} lines of {metrics.path} could not be written.")
        if remark := osbert_only_reason(learner.backbone.architecture):
            self._say(remark)
        if self._sentences and self._sentences.is_sparse:
            self._notice("The first model gave sparse vectors (SPLADE); this one, of masked pieces, gives none.")
        self._say(f"The model is in {self.out}; how it went is in {self._report()}.")

    def _keep_model(self, trainer: Trainer) -> None:
        """Write the model of this step into its own folder, without an effect on the run."""
        if not trainer.sound:
            return  # the checkpoint of this step says so
        weights = tensors.weights(self.learner, trainer.parallel)
        folder = self.out / MODELS / f"step-{trainer.step}"
        self.group.first(lambda: self._write(folder, self._copy(weights)))

    def _write(self, folder: Path, learner: Learner) -> None:
        """Write a learner (on the CPU) with its tokenizer, and its companions into subfolders."""
        for name, companion in learner.companions.items():
            self._write(folder / name, companion)
        folder.mkdir(parents=True, exist_ok=True)
        self._write_tokenizer(folder)
        write_model(learner, folder, tokenizer=self.plan.tokenizer)
        model = self._sentences
        if model and not model.is_sparse:  # a head that is trained on masked pieces gives no sparse vectors any more
            write_sentence_model(folder, model, width=learner.backbone.architecture.width)

    @property
    def _sentences(self) -> SentenceModel | None:
        """How the model that is trained further makes sentence vectors; None if it makes none, or starts anew."""
        return self.plan.origin.source.sentences if self.plan.origin else None

    def _copy(self, weights: Mapping[str, Tensor]) -> Learner:
        """Return a separate learner on the CPU with the run's weights."""
        learner = build_learner(self.plan)
        tensors.put_weights(learner, Alone(), weights)
        return learner

    def _report(self) -> Path:
        return self.out / "report.html"

    def _pass_on(self, trainer: Trainer) -> None:
        while trainer.notices:
            self._notice(trainer.notices.pop(0))

    def _notice(self, message: str) -> None:
        self.notices.append(message)
        self.watch(Notice(message, warning=True))

    def _say(self, message: str) -> None:
        self.watch(Notice(message))


def _over(trainer: Trainer) -> bool:
    """Return whether the run has no more steps."""
    return trainer.finished or ENDED in trainer.memory


def disk_bytes(parameters: int, training: TrainingSettings) -> int:
    """Return the bytes of a run on disk: checkpoints, one more while it is written, and models, in fp32."""
    checkpoint = 12 * parameters  # the weights and two moments of each
    models = 1 + (training.steps // training.models_every if training.models_every else 0)
    return checkpoint * (training.keep + 1) + 4 * parameters * models
