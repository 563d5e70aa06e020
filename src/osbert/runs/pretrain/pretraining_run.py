"""One pretraining run, started or resumed: the learner, the training loop with evaluations, the run folder."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from osbert import recipe
from osbert.corpus.build import describe_unknown
from osbert.data.batch import Batch, write_batches
from osbert.data.loader import PretrainingLoader, by_part
from osbert.data.stages import Stages
from osbert.data.step import Phases
from osbert.errors import UserError
from osbert.files import disk_needed
from osbert.interop.huggingface.folders import osbert_only_reason, write_model
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.models.contract import Learner
from osbert.reports.page import pretraining_report
from osbert.runs.contract import Notice, Watch
from osbert.runs.events import Measurement, TrainingStart
from osbert.runs.pretrain.first_weights import build_learner, first_weights, forgotten, other_text
from osbert.runs.pretrain.passes import HELD_OUT_BEFORE
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.runs.pretrain.start import KEPT_OUT
from osbert.training import memory, tensors
from osbert.training.distributed import ALONE, Group, Parallel, PeerFailure
from osbert.training.interruption import Interruption, StopRequest
from osbert.training.processor import too_few_devices
from osbert.training.progress import Mean, Progress
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import HELD_OUT, Metrics, SilentMetrics, TrackerQueue
from osbert.training.trainer import Trainer, TrainingSettings

if TYPE_CHECKING:
    from osbert.runs.pretrain.budget import RunClock

INPUTS = ("corpus", "tokenizer", "origin", "objective_inputs")
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

    learner: Learner
    loader: PretrainingLoader | Stages
    """The loader of the first steps; if the last ones have longer sequences, they have another."""
    trainer: Trainer
    metrics: Metrics | SilentMetrics
    held_out: Sequence[Batch]
    others: Mapping[str, Sequence[Batch]]
    """The batches of other text, by the name of their measurements."""

    def __init__(self, plan: PretrainPlan, out: Path, watch: Watch, wish: Interruption, group: Group = ALONE) -> None:
        """Prepare without building or writing anything. In a group only the first process writes."""
        self.group = group
        self.plan = plan
        self.out = out
        self.folder = RunFolder(out)
        self.report = out / "report.html"
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
            if impossible := too_few_devices(self.plan.settings.training.device, self.group.size):
                self.group.end(impossible, code="unavailable-device")
            if self.group.first(self._begin):
                return True
            trainer = self.trainer = self._build_trainer()
            if trainer.resume():
                self._say(f"Going on from the checkpoint of step {trainer.step:,}.")
            self._adapt()
            if self.plan.budget is not None:
                from osbert.runs.pretrain.budget import RunClock

                self.clock = RunClock(self.plan, trainer, self.group)
            try:
                with contextlib.closing(self.group.each(self._open_metrics)) as self.metrics:
                    self.metrics.go_back(trainer.step)
                    self._train()
            except UserError as error:
                if trainer.hopeless:
                    raise self._record_failure(str(error)) from error
                raise
            finally:
                # An error may explain itself by an earlier notice, and a tracker may fail as it ends.
                self._pass_on()
            if not self._over or OWED in trainer.memory:
                last = max(trainer.checkpoints.steps(), default=0)
                self._say(
                    f"Stopped after step {trainer.step:,} of {trainer.pace.steps:,}. "
                    f"The same command goes on from step {last:,}."
                )
                return False
            self._finish()
            return True

    def _begin(self) -> bool:
        """Write run.json, recipe and tokenizer; return whether the run is finished already."""
        settings, self.resumed = self.plan.settings, self.folder.begun
        defaults: Any = recipe.defaults(type(settings))
        defaults["data"]["held_out_of"] = HELD_OUT_BEFORE
        self.changes = self.folder.begin(recipe.as_table(settings), self.plan.facts(), inputs=INPUTS, defaults=defaults)
        if self.folder.finished:
            if not self.report.exists():
                pretraining_report(self.out, self.plan.objectives)
            self._say(f"The run in {self.out} is finished; nothing is left to do. Its report is {self.report}.")
            return True
        self._write_tokenizer(self.out)
        return False

    def _write_tokenizer(self, folder: Path) -> None:
        sizes = self.plan.settings.model
        write_any_tokenizer(self.plan.tokenizer, folder, length=sizes.length, segments=sizes.segments)

    def _build_trainer(self) -> Trainer:
        settings, plan = self.plan.settings, self.plan
        self.learner, fresh = first_weights(plan)
        loader: Any = plan.loader(length=settings.data.length).part(self.group.part)
        self.loader = longer = loader
        if settings.data.long_share:
            switch = round((1 - settings.data.long_share) * settings.training.steps)
            longer = plan.loader(length=settings.data.long_length).part(self.group.part)
            loader = Phases(self.loader, longer, switch=switch)
        parameters = sum(weight.numel() for weight in self.learner.parameters())
        trainer = Trainer(self.learner, loader, settings.optimizer, settings.training, self.out, self.group)
        self.loader.notices = longer.notices = trainer.notices
        self._introduce(str(trainer.processor), parameters)
        if plan.origin is not None and fresh:
            names = (f"the head of {name}" if name in plan.objectives else f"the {name}" for name in fresh)
            self._say(f"{plan.origin.folder} has no weights for {' and '.join(names)}: new ones.")
        for remark in plan.remarks:
            self._say(remark)
        return trainer

    def _introduce(self, device: str, parameters: int) -> None:
        settings, corpus = self.plan.settings, self.plan.corpus
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
        if self.loader.held and corpus.mixed:
            held_out = self.held_out_tokens()
            self._say(f"Held out: {', '.join(f'{tokens:,} tokens of {name}' for name, tokens in held_out)}.")
            if missing := [name for name, tokens in held_out if not tokens]:
                self._notice(f"The held-out loss says nothing of {' and '.join(missing)}.")
        if unknown := describe_unknown(corpus.report):
            self._notice(unknown)
        for course in filter(None, (objective.course() for objective in self.plan.objectives.values())):
            self._say(course)
        needed = disk_bytes(parameters, settings.training)
        free = shutil.disk_usage(self.out).free
        if settings.training.checkpoint_every and free < needed:
            self._notice(
                f"{self.out} has {free / 1e6:,.0f} MB of free disk, but checkpoints and the model may take "
                f"{needed / 1e6:,.0f} MB. A checkpoint that cannot be written is reported, and the one before is kept."
            )

    def held_out_tokens(self) -> list[tuple[str, int]]:
        """Return the name of each part of the corpus, and the number of its tokens that are held out."""
        corpus = self.plan.corpus
        groups = by_part(corpus, self.loader.held)
        return [(part.name, sum(map(corpus.size, group))) for part, group in zip(corpus.parts, groups)]

    def _adapt(self) -> None:
        """Apply and report settings that have changed since the run was stopped."""
        trainer = self.trainer
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

    def _open_metrics(self) -> Metrics | SilentMetrics:
        """Return the writer of metrics; in a group only the first process writes."""
        if self.group.rank:
            return SilentMetrics()
        settings, trainer = self.plan.settings.training, self.trainer
        queue = TrackerQueue(self.out, settings.track, trainer.notices) if settings.track else None
        return Metrics(self.out, every=settings.log_every, memory=trainer.memory, queue=queue)

    def _train(self) -> None:
        """Take the remaining steps with their evaluations, or those before a wish to stop; then write a checkpoint."""
        trainer = self.trainer
        self.held_out, self.others = self.loader.make_held_out(), other_text(self.plan)
        if self.plan.origin is not None and not self.others:
            self._notice(
                f"{self.plan.origin.folder} keeps no held-out text ({KEPT_OUT}), so what is forgotten of the text it "
                "was trained on cannot be measured."
            )
        self.watch(TrainingStart(processor=str(trainer.processor), done=trainer.step, steps=trainer.pace.steps))
        self._pass_on()
        self.settled = trainer.step
        if self.others and not trainer.step:
            trainer.memory[OWED] = True
        try:
            if OWED in trainer.memory:
                self._evaluate()
            if OWED not in trainer.memory and not self._over:
                # Closed here and not when it is collected: a checkpoint in the background is whole before the lock is
                # given up.
                with contextlib.closing(trainer.run()) as steps:
                    for progress in steps:
                        if self._finish_step(progress):
                            break  # after the last step the trainer goes on to its checkpoint
        except KeyboardInterrupt:
            if trainer.whole and self.settled == trainer.step and self.group.size == 1 and not self.wish.signal:
                trainer.save()
            raise
        if OWED in trainer.memory or not trainer.finished:
            trainer.save()

    def _finish_step(self, progress: Progress) -> bool:
        """Record a step and do what is due after it; return whether the run stops here."""
        trainer, settings = self.trainer, self.plan.settings.training
        line = self.metrics.step(progress)
        if self.clock is not None and self.clock.correct() and self.clock.is_news():
            self._say(f"From step {trainer.step:,} on there are {trainer.pace.steps:,} steps, to end in time.")
        if due := trainer.finished or (settings.evaluate_every and progress.step % settings.evaluate_every == 0):
            trainer.memory[OWED] = True
        if settings.models_every and progress.step % settings.models_every == 0:
            self._keep_model()
        self.settled = trainer.step
        self.watch(progress)
        if line is not None:
            self.watch(Measurement(of="training", values=line))
        if due:
            self._evaluate()
        self._pass_on()
        if ENDED in trainer.memory:
            return True
        # All processes stop after the same step if any of them has received a signal.
        wishes = [number for number in self.group.gather(self.wish.signal, "wishes to stop") if number is not None]
        if wishes:
            self.wish.signal = wishes[0]
        return bool(wishes) and not trainer.finished

    def _evaluate(self) -> None:
        """Evaluate on the held-out text and on other text; end the run if the latter is forgotten too much.

        A wish to stop interrupts it, as it may take as long as many steps; it is then owed (OWED). In a group it is not
        interrupted, since all processes must do the same.
        """
        trainer = self.trainer
        trainer.memory[OWED] = True
        texts = {HELD_OUT: self.held_out} if self.loader.held else {}
        texts |= {name: batches[self.group.rank :: self.group.size] for name, batches in self.others.items()}
        try:
            with self.wish.at_once() if self.group.size == 1 else contextlib.nullcontext():
                means = {name: trainer.evaluate(batches) for name, batches in texts.items()}
        except StopRequest:
            return
        # Until the results are written, an interruption must not save this step as complete.
        self.settled = -1
        lines = [
            Measurement(of=name, values=self.metrics.record_held_out(trainer.step, text_means, of=name))
            for name, text_means in means.items()
        ]
        if self.others and self.plan.settings.forgetting is not None:
            self._end_if_forgetting({name: means[name] for name in self.others}, self.plan.settings.forgetting)
        del trainer.memory[OWED]
        self.settled = trainer.step
        for line in lines:
            self.watch(line)

    def _end_if_forgetting(self, means: Mapping[str, Mapping[str, Mean]], limit: float) -> None:
        """End the run if a loss on other text is above its lowest value by more than `limit`."""
        trainer = self.trainer
        losses = {
            f"{of}.{name}.loss": mean.loss for of, text_means in means.items() for name, mean in text_means.items()
        }
        if not losses:
            return
        name, rise = forgotten(losses, trainer.memory.setdefault(LOWEST, {}))
        if rise > limit and not trainer.finished:
            trainer.memory[ENDED] = (
                f"The run ended at step {trainer.step:,} of {trainer.pace.steps:,}: {name} rose by {rise:.3f} "
                f"nats, more than forgetting = {limit:g} allows."
            )

    @property
    def _over(self) -> bool:
        """Whether the run has no more steps."""
        return self.trainer.finished or ENDED in self.trainer.memory

    def _record_failure(self, reason: str) -> UserError:
        """Record that the run diverged, as the same command would again; return the error with advice."""
        trainer = self.trainer
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

    def _finish(self) -> None:
        if not self.trainer.sound:
            if self.group.rank:
                raise PeerFailure
            raise self._record_failure("The weights have become infinite or undefined, so no model was written.")
        weights = tensors.weights(self.learner, self.trainer.parallel)
        self.group.first(partial(self._conclude, weights))

    def _conclude(self, weights: Mapping[str, Tensor]) -> None:
        """Write the model with these weights and the report, and report where they are."""
        learner, trainer, metrics = self.learner, self.trainer, self.metrics
        if trainer.parallel.sharded:  # then each process has but a share of every weight
            learner = self._copy(weights)
        assert isinstance(metrics, Metrics)  # that of the first process
        metrics.settle()
        self._write(self.out, learner.cpu())
        held_out = self.held_out  # of this process
        if self.group.size > 1:
            held_out = self.plan.loader(length=self.plan.settings.data.length).make_held_out()
        if held_out:
            write_batches(self.out / KEPT_OUT, held_out)
        parameters = sum(weight.numel() for weight in learner.parameters())
        facts: dict[str, Any] = {"processor": str(trainer.processor), "parameters": parameters}
        if held_out:
            facts["held_out"] = self.held_out_tokens()
        if self.plan.budget is not None:
            facts |= {"wall_seconds": round(time.monotonic() - self.plan.begun, 6), "resumed": self.resumed}
        if ended := trainer.memory.get(ENDED):
            facts[ENDED] = ended
            self._say(ended)
        self.folder.finish(facts)
        pretraining_report(self.out, self.plan.objectives)
        for notice in self.notices:
            self._say(f"Remember: {notice}")
        if metrics.unwritten:
            self._say(f"{len(metrics.unwritten)} lines of {metrics.path} could not be written.")
        if remark := osbert_only_reason(learner.backbone.architecture):
            self._say(remark)
        if self._sentences and self._sentences.kind == "sparse":
            self._notice("The first model gave sparse vectors (SPLADE); this one, of masked pieces, gives none.")
        self._say(f"The model is in {self.out}; how it went is in {self.report}.")

    def _keep_model(self) -> None:
        """Write the model of this step into its own folder, without an effect on the run."""
        trainer = self.trainer
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
        if model and model.kind != "sparse":  # a head that is trained on masked pieces gives no sparse vectors any more
            write_sentence_model(folder, model, width=learner.backbone.architecture.width)

    @property
    def _sentences(self) -> SentenceModel | None:
        """How the model that is trained further makes sentence vectors; None if it makes none, or starts anew."""
        return self.plan.origin.source.sentences if self.plan.origin else None

    def _copy(self, weights: Mapping[str, Tensor]) -> Learner:
        """Return a separate learner on the CPU with the run's weights."""
        learner = build_learner(self.plan)
        tensors.put_weights(learner, Parallel(), weights)
        return learner

    def _pass_on(self) -> None:
        while self.trainer.notices:
            self._notice(self.trainer.notices.pop(0))

    def _notice(self, message: str) -> None:
        self.notices.append(message)
        self.watch(Notice(message, warning=True))

    def _say(self, message: str) -> None:
        self.watch(Notice(message))


def disk_bytes(parameters: int, training: TrainingSettings) -> int:
    """Return the bytes of a run on disk: checkpoints, one more while it is written, and models, in fp32."""
    checkpoint = 12 * parameters  # the weights and two moments of each
    models = 1 + (training.steps // training.models_every if training.models_every else 0)
    return checkpoint * (training.keep + 1) + 4 * parameters * models
