"""Fine-tuning from the checked records to the finished run: scores on the way, and the weights that are kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path

from osbert.analysis.data_map import DataMap
from osbert.errors import Problems, UserError
from osbert.evaluation.compare import sortable
from osbert.evaluation.intervals import ScoreInterval
from osbert.evaluation.score import Score
from osbert.interop.huggingface.folders import write_model
from osbert.interop.huggingface.tokenizers import write_any_tokenizer
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.interop.tuned_files import keep_tuned
from osbert.interop.weight_files import fingerprint, read_file, write_tensors
from osbert.models.adapting.features import VECTORS
from osbert.models.contract import Head, Learner
from osbert.models.random_numbers import seeded
from osbert.objectives.left_to_right import LeftToRight
from osbert.runs.finetune.data_map import KEPT, DataMapRecorder
from osbert.runs.finetune.events import Epoch
from osbert.runs.finetune.few_shot import contrastive_learner, fit
from osbert.runs.finetune.model import StartingModel
from osbert.runs.finetune.rows import FinetuneRows, TaskOutcome
from osbert.runs.finetune.settings import RANKS, FinetuneSettings, ScoreSettings
from osbert.runs.finetune.tuning import changes, prepare
from osbert.tasks import Prediction
from osbert.training.checkpoint import CHECKPOINTS
from osbert.training.optimizer import OptimizerSettings
from osbert.training.progress import Progress
from osbert.training.trainer import Trainer

AFTER_EPOCHS = ScoreSettings()
SHORT = 200
"""Most steps of a run of which every step's loss is kept for the report: metrics.jsonl may have few lines of it."""


class FinetuneTrainer:
    """One run: `for event in run()` trains, yielding Progress after a step and Epoch after a score; `finish` saves."""

    def __init__(
        self,
        *,
        model: StartingModel,
        rows: FinetuneRows,
        settings: FinetuneSettings,
        optimizer: OptimizerSettings,
        folder: Path,
        scores: ScoreSettings = AFTER_EPOCHS,
    ) -> None:
        """Make the learner.

        Raises UserError when the rows are pairs and the model has but one segment, and when a head on a frozen encoder
        does not go with the settings or with other tasks.
        """
        self.rows = rows
        self.folder = folder
        if model.backbone.architecture.segments == 1 and rows.pairs:
            raise UserError(
                "These are pairs of texts, and the model was trained without a second segment (segments = 1). Take "
                "another model, or put both texts into one column.",
                code="unsupported-model",
            )
        with seeded(settings.seed):
            heads = rows.heads(model.backbone)
            check_frozen(heads, settings)
            rank = settings.rank or RANKS[settings.tuning]
            prepare(model.backbone, settings.tuning, rank=rank, frozen=settings.frozen)
        self.settings = settings
        self.scores = scores
        self.start = model.source.path
        for head in heads.values():
            if head.form == "text" and model.language:
                head.load_state_dict(model.language.state_dict())
        auxiliary = {LeftToRight().name: model.language} if settings.auxiliary and model.language else {}
        self.learner = Learner(model.backbone, heads | auxiliary)
        self.learner.weights = rows.weights | dict.fromkeys(auxiliary, settings.auxiliary)
        self.loader = rows.loader(batch=settings.batch, micro_tokens=settings.micro_tokens, seed=settings.seed)
        training = settings.training(self.loader.steps_per_epoch)
        trained = contrastive_learner(model.backbone, *heads) if settings.contrastive else self.learner
        self.period = scores.period(self.loader.steps_per_epoch)
        self.trainer = Trainer(trained, self.loader, optimizer, training, folder)
        self.learner.to(self.trainer.processor.device)
        self.map = DataMapRecorder.of(rows, self.learner, folder) if scores.data_map else None
        self.scored: Score | None = None
        """How the kept epoch did; None where a resumed run was stopped after it."""
        self.trainer.memory |= {"epochs": [], "losses": [], "course": [], "learnt": {}, "before": {}, "weights": ""}

    @property
    def epochs(self) -> list[Epoch]:
        """Return all scores, those before a resumption included."""
        return [Epoch(**entry) for entry in self.trainer.memory["epochs"]]

    @property
    def best(self) -> Epoch:
        """Return the score whose weights are kept: the best, or the last one where the settings say so.

        Of equal ones it is the last, but none that has collapsed before one that has not.
        """
        return [epoch for epoch in self.epochs if epoch.best or self.scores.keep == "last"][-1]

    @property
    def ended_early(self) -> bool:
        """Return whether the last scores, as many as `patience`, brought none that is higher than those before."""
        return self._exhausted(self.epochs)

    @property
    def outcomes(self) -> list[TaskOutcome]:
        """Return the tasks with what was learnt from the best epoch's predictions."""
        return self.rows.outcomes(self.trainer.memory["learnt"])

    def prepare(self) -> str:
        """Work out what is worked out once, in the run's folder, and return in words what was; `tidy` removes it.

        Raises OSError when the disk is full.
        """
        return self.rows.prepare(self.learner, self.folder)

    def before(self) -> dict[str, float]:
        """Return the scores on the development rows before the first step, of tasks that need no teaching; else {}."""
        memory = self.trainer.memory
        if self.rows.compared and not self.trainer.step:
            memory["before"] = self.rows.score(self.learner).metrics
        return dict(memory["before"])

    def run(self) -> Iterator[Progress | Epoch]:
        """Train to the end, yielding what happened. Few-shot learning begins with an epoch 0, without a step."""
        memory = self.trainer.memory
        if self.settings.few_shot != "none" and not memory["epochs"]:
            yield self._ended()
        for progress in self.trainer.run() if self.steps and not self.ended_early else ():
            if not progress.skipped:
                memory["losses"].append(progress.loss)
                if progress.steps <= SHORT:
                    memory.setdefault("course", []).append((progress.step, progress.loss))
            yield progress
            if self.is_scored(progress):
                yield self._ended()
                if self.ended_early:
                    self.trainer.save()
                    return

    @property
    def steps(self) -> int:
        """Return the number of optimiser steps: none where only a linear layer is fitted."""
        return 0 if self.settings.few_shot == "linear" else self.trainer.settings.steps

    def is_scored(self, progress: Progress) -> bool:
        """Return whether an Epoch follows; between the two there is no place to stop, or it would never be scored."""
        step = progress.step
        return step // self.period > (step - 1) // self.period or step == progress.steps

    def finish(self) -> None:
        """Write the kept weights as the run's model; what it takes to do so again stays until `tidy`."""
        path = self._weights(self.best)
        weights = read_file(path)
        noted = self.trainer.memory.get("weights")  # a checkpoint of an earlier version has none
        if noted and fingerprint(weights) != noted:
            again = f"Remove {self.folder} and give the same command again"
            raise UserError(
                f"{path} is damaged: it is not what was written after epoch {self.best.place}. {again}.",
                code="damaged-file",
            )
        self.learner.load_state_dict(weights)
        self.scored = self.scored or self.rows.score(self.learner)
        self.learner.to("cpu")
        backbone = self.learner.backbone
        low_rank = changes(backbone) if self.settings.tuning == "lora" else {}
        for one in self.outcomes:
            folder, head = self.folder / one.folder, self.learner.heads[one.task.name]
            tokenizer, sizes = self.rows.tokenizer, backbone.architecture
            learner = Learner(backbone, {one.task.name: head})
            write_model(learner, folder, tokenizer=tokenizer, **one.task.published())
            write_any_tokenizer(tokenizer, folder, length=sizes.length, segments=sizes.segments)
            if head.pooling:
                length = min(one.task.length, sizes.length)
                model = SentenceModel(pooling=head.pooling, normalize=True, length=length)
                write_sentence_model(folder, model, width=sizes.width)
            if self.settings.tuning != "full" and not self.settings.merge:
                keep_tuned(folder, self.start, low_rank)

    @property
    def course(self) -> list[tuple[float, float]]:
        """Return the steps of a short run with their losses, none of a longer one."""
        return [(step, loss) for step, loss in self.trainer.memory.get("course", ())]

    @property
    def data_map(self) -> DataMap | None:
        """Return the map of the training rows, None if it is switched off or there are too few scores."""
        return self.map.read(self.epochs) if self.map else None

    @property
    def predictions(self) -> Sequence[Prediction]:
        """Return the predictions of the best epoch for the development rows, once the run is finished."""
        return self.scored.predictions if self.scored else ()

    @cached_property
    def intervals(self) -> list[dict[str, ScoreInterval]]:
        """Return the intervals of each task's metrics, once the run is finished."""
        return self.rows.intervals(self.predictions)

    def tidy(self) -> None:
        """Remove what only training needs, checkpoints included, once the run is noted as finished."""
        tidy(self.folder)

    def _ended(self) -> Epoch:
        """Return the epoch, or the part of one, that has ended, and note it."""
        memory = self.trainer.memory
        losses = list(memory["losses"])
        if self.settings.few_shot != "none":
            [rows] = self.rows.tasks
            fitted = fit(self.learner, rows.task.name, rows.batches())
            losses = losses or [fitted]
        epoch = self._evaluate(sum(losses) / max(len(losses), 1))
        if self.map:
            self.map.note(epoch, self.learner)
        memory["epochs"].append(asdict(epoch))
        memory["losses"].clear()
        return epoch

    def _evaluate(self, loss: float) -> Epoch:
        step, per_epoch = self.trainer.step, self.loader.steps_per_epoch
        result = self.rows.score(self.learner)
        before = [epoch for epoch in self.epochs if epoch.best]
        epoch = Epoch(
            epoch=step / per_epoch if step % per_epoch else step // per_epoch,
            step=step,
            loss=loss,
            metrics=result.metrics,
            best=False,
            seconds=self.trainer.counters.seconds,
            collapsed=self.rows.collapsed(result.predictions),
        )
        best = not before or self._merit(epoch) >= self._merit(before[-1])
        last = self.trainer.step >= self.steps or self._exhausted([*self.epochs, epoch])
        if last if self.scores.keep == "last" else best:
            self.scored = result
            self._keep(epoch, result.predictions, before)
        return replace(epoch, best=best)

    def _keep(self, epoch: Epoch, predictions: Sequence[Prediction], before: Sequence[Epoch]) -> None:
        """Write the weights of this moment, and note what the tasks learn from the predictions."""
        self.trainer.memory["learnt"] = self.rows.learnt(predictions)
        weights = {name: weight.detach().cpu() for name, weight in self.learner.state_dict().items()}
        write_tensors(weights, self._weights(epoch))
        self.trainer.memory["weights"] = fingerprint(weights)
        # If the process dies now, the last checkpoint still refers to the best one of its own time: that stays.
        saved = max(self.trainer.checkpoints.steps(), default=0)
        needed = [epoch for epoch in before if epoch.step <= saved][-1:]
        for earlier in before:
            if earlier not in needed:
                self._weights(earlier).unlink(missing_ok=True)

    def _merit(self, epoch: Epoch) -> tuple[float, bool]:
        """Return what scores are compared by: the criterion, and of equal ones, that there is more than one answer."""
        return sortable(epoch.metrics[self.rows.criterion]), not epoch.collapsed

    def _exhausted(self, epochs: Sequence[Epoch]) -> bool:
        merits = [self._merit(epoch) for epoch in epochs]
        return bool(self.scores.patience and merits) and len(merits) - merits.index(max(merits)) > self.scores.patience

    def _weights(self, epoch: Epoch) -> Path:
        return self.folder / f"best-epoch-{epoch.epoch}.safetensors"


def tidy(folder: Path) -> None:
    """Remove from a run's folder what only training needs, checkpoints included."""
    for pattern in ("best-epoch-*.safetensors", VECTORS, KEPT):
        for path in folder.glob(pattern):
            path.unlink()
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def check_frozen(heads: Mapping[str, Head], settings: FinetuneSettings) -> None:
    """Raise UserError when a head on a frozen encoder (`Head.frozen`) has company that would have it learn."""
    name = next((name for name, head in heads.items() if head.frozen), None)
    if name is None:
        return
    problems = Problems(heading=f"{name} stands on an encoder that does not learn (--features)")
    if len(heads) > 1:
        others = ", ".join(other for other in heads if other != name)
        problems.add(
            f"Others ({others}) cannot share it: fine-tune {name} by itself, or leave --features out.",
            code="options-exclude-each-other",
        )
    idle = {"tuning": settings.tuning != "full", "frozen": settings.frozen > 0, "recurrent": settings.recurrent > 0}
    idle["auxiliary"] = settings.auxiliary > 0
    for setting in (setting for setting, given in idle.items() if given):
        problems.add(
            f"--{setting} {getattr(settings, setting)} does nothing there: leave it out.",
            code="options-exclude-each-other",
        )
    problems.stop_if_any()
