"""The training loop of a fine-tuning: scores after each epoch, and the weights that are kept."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.evaluation.bootstrap import ScoreInterval, score_intervals
from osbert.extensions import require_extension
from osbert.files import write_json
from osbert.guarded import read_object
from osbert.interop.files.weight_files import fingerprint, read_file, write_tensors
from osbert.interop.huggingface.folders import write_model
from osbert.interop.sentence_files import MATRYOSHKA, SentenceModel, write_sentence_model
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.interop.tuned_files import keep_tuned
from osbert.models.contract import Head, Learner
from osbert.models.heads.colbert import ColbertHead
from osbert.models.heads.features import VECTORS
from osbert.models.heads.predictions import share_table
from osbert.models.random_numbers import fix_seed
from osbert.objectives.left_to_right import LeftToRight
from osbert.runs.events import Epoch
from osbert.runs.finetune.few_shot import contrastive_learner, fit, read_pairs_apart
from osbert.runs.finetune.model import StartingModel, merge_low_rank, prepare_tuning
from osbert.runs.finetune.rows import UNSCORED, DevelopmentScore, FinetuneRows, TaskOutcome
from osbert.runs.finetune.settings import FinetuneSettings, ScoreSettings, refuse_conflicts
from osbert.training.checkpoint import CHECKPOINTS
from osbert.training.optimizer import OptimizerSettings
from osbert.training.progress import Progress
from osbert.training.trainer import Trainer

AFTER_EPOCHS = ScoreSettings()
KEPT = "map-epoch-*.npy"
"""Files of a data map with the probabilities at each score, kept until the run is finished."""
SHORT = 200
"""Most steps of a run for which every loss is kept for the report, since metrics.jsonl would have few lines."""


class FinetuneTrainer:
    """One run: `run` trains and yields Progress after a step and Epoch after a score; `finish` writes the model."""

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
        """Build the learner and the trainer.

        Raises UserError for pairs if the model has one segment, and if a head with a frozen encoder conflicts with the
        settings or with other tasks.
        """
        self.rows = rows
        self.folder = folder
        if model.backbone.architecture.segments == 1 and any(task_rows.pairs for task_rows in rows.tasks):
            raise UserError(
                "These are pairs of texts, and the model was trained without a second segment (segments = 1). Take "
                "another model, or put both texts into one column.",
                code="unsupported-model",
            )
        # All random numbers of new layers in one block, so that a resumed run builds the same learner.
        with fix_seed(settings.seed):
            heads = {name: head for task in rows.tasks for name, head in task.heads(model.backbone).items()}
            check_frozen(heads, settings)
            share_table(heads.values())
            prepare_tuning(model.backbone, settings)
        self.settings = settings
        self.scores = scores
        self.source = model.source
        for head in heads.values():
            if head.form == "text" and model.language:
                head.load_state_dict(model.language.state_dict())
        model.fill_reused(heads, [task_rows.task for task_rows in rows.tasks])
        auxiliary = {LeftToRight().name: model.language} if settings.auxiliary and model.language else {}
        self.learner = Learner(model.backbone, heads | auxiliary)
        weights = {name: weight for task_rows in rows.tasks for name, weight in task_rows.weights.items()}
        self.learner.weights = weights | dict.fromkeys(auxiliary, settings.auxiliary)
        self.loader = rows.loader(batch=settings.batch, micro_tokens=settings.micro_tokens, seed=settings.seed)
        training = settings.training(self.loader.steps_per_epoch)
        trained = self.learner
        if settings.contrastive:
            [(name, head)] = heads.items()
            trained = contrastive_learner(model.backbone, name, head)
        self.period = scores.period(self.loader.steps_per_epoch)
        self.trainer = Trainer(trained, self.loader, optimizer, training, folder)
        device = self.trainer.processor.device
        self.learner.to(device)
        # After the move: it shares the encoder's weights.
        self.apart = read_pairs_apart(rows.tasks[0], model) if settings.few_shot == "linear-first" else None
        if self.apart:
            self.apart[0].to(device)
        self.map: Any = None
        if scores.data_map:
            recorder = require_extension("osbert.runs.finetune.maps", "data_map", "--data-map")
            self.map = recorder.of(rows, self.learner, folder)
        self.scored: DevelopmentScore | None = None
        """Scores of the kept epoch; None in a resumed run whose kept epoch came before the stop."""
        self.trainer.memory |= {"epochs": [], "losses": [], "course": [], "learnt": {}, "before": {}, "weights": ""}

    @property
    def epochs(self) -> list[Epoch]:
        """All scores, with those before a resumption."""
        return [Epoch(**entry) for entry in self.trainer.memory["epochs"]]

    @property
    def best(self) -> Epoch:
        """The epoch whose weights are kept: the best, or the last if the settings say so.

        Of equal ones it is the last (with keep = better the first), and one that has not collapsed is preferred.
        A cross-validation scores no epoch: its metrics are those of the linear layer.
        """
        best = [epoch for epoch in self.epochs if epoch.best or self.scores.keep == "last"][-1]
        crossed = self.rows.tasks[0].cross_validation
        return replace(best, metrics=crossed.metrics) if crossed else best

    @property
    def rivals(self) -> dict[str, Epoch]:
        """The fitted linear layer and the tuned model, of which the better is kept, if few-shot learning has both.

        The tuned model is that of the best epoch after the first step, or of the last if epochs are not compared.
        """
        if self.settings.few_shot in ("none", "linear") or len(self.epochs) < 2 or not self.epochs[0].metrics:
            return {}
        first, *tuned = self.epochs
        best = max(reversed(tuned), key=self._merit) if self.scores.keep == "best" else tuned[-1]
        return {"linear layer": first, "contrastive" if self.settings.contrastive else "fine-tuned": best}

    @property
    def ended_early(self) -> bool:
        """Whether the last `patience` scores brought no improvement."""
        return self._is_exhausted(self.epochs)

    @cached_property
    def outcomes(self) -> list[TaskOutcome]:
        """The tasks, tuned on the predictions of the kept epoch, once the run is trained."""
        return self.rows.outcomes(self.trainer.memory["learnt"])

    def before(self) -> dict[str, float]:
        """Return the scores before the first step if all tasks are on vectors, which untrained models have; else {}."""
        memory = self.trainer.memory
        if not self.trainer.step and all(rows.task.form == "vectors" for rows in self.rows.tasks):
            memory["before"] = self.rows.score(self.learner).metrics
        return dict(memory["before"])

    def run(self) -> Iterator[Progress | Epoch]:
        """Train to the end and yield the events. Few-shot learning begins with an epoch 0, without a step."""
        memory = self.trainer.memory
        if self.settings.few_shot != "none" and not memory["epochs"]:
            yield self._end_epoch()
        self._prepare_step()
        for progress in self.trainer.run() if self.steps and not self.ended_early else ():
            self._prepare_step()
            if not progress.skipped:
                memory["losses"].append(progress.loss)
                if progress.steps <= SHORT:
                    memory.setdefault("course", []).append((progress.step, progress.loss))
                    memory.setdefault("rates", []).append((progress.step, progress.learning_rate))
            yield progress
            if self.is_scored(progress):
                yield self._end_epoch()
                if self.ended_early:
                    self.trainer.save()
                    return

    def _prepare_step(self) -> None:
        for head in self.learner.heads.values():
            head.begin_step(self.trainer.step / max(self.steps, 1))

    @property
    def steps(self) -> int:
        """The number of optimiser steps; 0 if only a linear layer is fitted."""
        return 0 if self.settings.few_shot == "linear" else self.trainer.settings.steps

    def is_scored(self, progress: Progress) -> bool:
        """Return whether an Epoch follows this step. The run must not stop between them, or the score would be lost."""
        step = progress.step
        # The period can be a fraction: a score is due after the step that crosses a multiple of it, and after the last.
        return step // self.period > (step - 1) // self.period or step == progress.steps

    def finish(self) -> None:
        """Write the kept weights as the run's model. It can be repeated until `tidy` removes its inputs."""
        path = self._weights(self.best)
        weights = read_file(path)
        noted = self.trainer.memory.get("weights")  # a checkpoint of an earlier version has none
        if noted and fingerprint(weights) != noted:
            again = f"Remove {self.folder} and run the same command again"
            raise UserError(
                f"{path} is damaged: it differs from the weights written after epoch {self.best.place}. {again}.",
                code="damaged-file",
            )
        winner, rows = self._candidate(self.best.step)
        winner.load_state_dict(weights)
        self.scored = self.scored or rows.score(winner)
        winner.to("cpu")
        backbone = winner.backbone
        low_rank = merge_low_rank(backbone) if self.settings.tuning == "lora" else {}
        for outcome in self.outcomes:
            folder, head = self.folder / outcome.folder, winner.heads[outcome.task.name]
            tokenizer, sizes = self.rows.tokenizer, backbone.architecture
            learner = Learner(backbone, {outcome.task.name: head})
            write_model(learner, folder, tokenizer=tokenizer, **outcome.task.export_metadata())
            write_any_tokenizer(tokenizer, folder, length=sizes.length, segments=sizes.segments)
            if head.pooling:
                length = min(outcome.task.length, sizes.length)
                sentences = self.source.sentences or SentenceModel(pooling="cls", normalize=True)
                trained = sentences.after_training(
                    outcome.task.prompts,
                    pooling=head.pooling,
                    length=length,
                    tokens=head.token_vectors() if isinstance(head, ColbertHead) else None,
                )
                write_sentence_model(folder, trained, width=sizes.width)
                if head.dimensions:
                    config = folder / "config.json"
                    write_json(config, {**read_object(config), MATRYOSHKA: sorted(head.dimensions)})
            if self.settings.tuning in ("adapters", "lora") and not self.settings.merge:
                keep_tuned(folder, self.source.path, low_rank)

    @cached_property
    def intervals(self) -> list[dict[str, ScoreInterval]]:
        """The confidence intervals of each task's metrics on the development rows, once the run is finished."""
        assert self.scored is not None  # `finish` has made sure
        return [
            score_intervals(rows.task, predictions, rows.development)
            for rows, predictions in zip(self.rows.tasks, self.scored.predictions, strict=True)
        ]

    def _end_epoch(self) -> Epoch:
        """Score the model, record the epoch (or part of one) that has ended, and return it."""
        memory = self.trainer.memory
        losses = list(memory["losses"])
        method = self.settings.few_shot
        step, per_epoch = self.trainer.step, self.loader.steps_per_epoch
        learner, rows = self._candidate(step)
        if method != "none" and not (method == "linear-first" and memory["epochs"]):
            [task_rows] = rows.tasks
            # One meaning before and after the first step: the loss of the fitted layer, not the contrastive one.
            losses = [fit(learner, task_rows.task.name, task_rows.batches())]
        score = rows.score(learner)
        epoch_score = UNSCORED if rows.tasks[0].cross_validation else score
        epoch = Epoch(
            epoch=step / per_epoch if step % per_epoch else step // per_epoch,
            step=step,
            loss=sum(losses) / max(len(losses), 1),
            metrics=epoch_score.metrics,
            best=False,
            seconds=self.trainer.counters.seconds,
            collapsed=epoch_score.collapsed,
        )
        before = [earlier for earlier in self.epochs if earlier.best]
        best = not before or self._merit(epoch) >= self._merit(before[-1])
        last = step >= self.steps or self._is_exhausted([*self.epochs, epoch])
        if self.scores.keep == "better":
            # The last score against the first: equal ones keep the linear layer, since ties come of few rows.
            best = not before or (last and self._merit(epoch) > self._merit(before[-1]))
        if last if self.scores.keep == "last" else best:
            self._keep(epoch, score, before)
        epoch = replace(epoch, best=best)
        if self.map and step:  # the map begins after the first step
            self.map.note(epoch, self.learner)
        memory["epochs"].append(asdict(epoch))
        memory["losses"].clear()
        return epoch

    def _candidate(self, step: int) -> tuple[Learner, FinetuneRows]:
        """Return the model that is scored after a step, with its rows: before the first one that reads pairs apart."""
        return self.apart if self.apart and not step else (self.learner, self.rows)

    def _keep(self, epoch: Epoch, score: DevelopmentScore, before: Sequence[Epoch]) -> None:
        """Write the current weights, and store the values that the tasks tune on the development rows."""
        self.scored = score
        learner, rows = self._candidate(epoch.step)
        # The temperature of a cross-validated layer does not suit a model that is tuned after it.
        suits = epoch.metrics or self.settings.few_shot == "linear"
        self.trainer.memory["learnt"] = rows.tune_values(score if suits else UNSCORED)
        weights = {name: weight.detach().cpu() for name, weight in learner.state_dict().items()}
        write_tensors(weights, self._weights(epoch))
        self.trainer.memory["weights"] = fingerprint(weights)
        # If the process dies now, the last checkpoint still refers to the best one of its own time: that stays.
        saved = max(self.trainer.checkpoints.steps(), default=0)
        needed = [epoch for epoch in before if epoch.step <= saved][-1:]
        for earlier in before:
            if earlier not in needed:
                self._weights(earlier).unlink(missing_ok=True)

    def _merit(self, epoch: Epoch) -> tuple[float, bool]:
        """Return the key that compares epochs: the criterion, then whether predictions have not collapsed."""
        score = epoch.metrics.get(self.rows.criterion, math.nan)
        return (-math.inf if math.isnan(score) else score), not epoch.collapsed

    def _is_exhausted(self, epochs: Sequence[Epoch]) -> bool:
        merits = [self._merit(epoch) for epoch in epochs]
        return bool(self.scores.patience and merits) and len(merits) - merits.index(max(merits)) > self.scores.patience

    def _weights(self, epoch: Epoch) -> Path:
        return self.folder / f"best-epoch-{epoch.epoch}.safetensors"


def tidy(folder: Path) -> None:
    """Remove from a run's folder the files that only training needs, such as checkpoints."""
    for pattern in ("best-epoch-*.safetensors", VECTORS, KEPT):
        for path in folder.glob(pattern):
            path.unlink()
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def check_frozen(heads: Mapping[str, Head], settings: FinetuneSettings) -> None:
    """Raise UserError if a head with a frozen encoder (`Head.frozen`) is combined with anything that trains it."""
    name = next((name for name, head in heads.items() if head.frozen), None)
    if name is None:
        return
    others = ", ".join(other for other in heads if other != name)
    apart = heads[name].form == "vectors"
    conflicts: dict[str, object] = {
        f"Other tasks ({others}) cannot share it. Fine-tune {name} by itself, or remove --features.": others,
        "--apart compares vectors of the encoder, which the features are not. Remove it.": apart,
    }
    idle = {"tuning": ("full",), "frozen": (0,), "recurrent": (0,), "auxiliary": (0,), "few_shot": ("none", "auto")}
    for setting, usual in idle.items():
        value = getattr(settings, setting)
        conflicts[f"--{setting.replace('_', '-')} {value} has no effect. Remove it."] = value not in usual
    refuse_conflicts(f"{name} uses a frozen encoder (--features)", conflicts)
