"""The loop: steps in, weights out. It knows no model, objective or task, and can be killed and go on at any moment.

A learner is any module whose forward(batch) gives {objective: Loss}. The gradient of a step is the sum over objectives
of (loss summed over all micro-batches) / (labels in the whole step): the very gradient of one large batch.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.data.step import Cursor, Loader, Step, ahead
from osbert.errors import UserError
from osbert.recipe import difference
from osbert.training import tensors
from osbert.training.checkpoint import Checkpoint, Checkpoints, WriteError
from osbert.training.optimizer import OptimizerSettings, limit
from osbert.training.processor import Precision, choose
from osbert.training.progress import Counters, Mean, Outcome, Progress, Sums

PATIENCE = 3
"""So many unusable steps in a row end the run."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How long to train, on what, and how often to look at it."""

    steps: int = 1_000_000
    """Optimiser steps from the first to the last."""
    precision: Precision = "auto"
    """Precision of matrix products; auto is bf16 where the processor has it."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto is a GPU where there is one."""
    seed: int = 0
    """Decides the first weights and the dropout."""
    log_every: int = 100
    """Steps between two lines of metrics.jsonl and of progress."""
    checkpoint_every: int = 1000
    """Steps between two checkpoints; 0 for none."""
    evaluate_every: int = 1000
    """Steps between two looks at the held-out batches; 0 for the end only."""
    keep: int = 2
    """Checkpoints that are kept, the newest ones."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no run."""
        for name, least in (("steps", 1), ("seed", 0), ("log_every", 1), ("keep", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("checkpoint_every", "evaluate_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")


class Trainer:
    """Trains a learner on a loader's steps; `for progress in trainer.run()` is the whole of it.

    `notices`: messages for the user, such as a checkpoint that could not be written; the caller shows them. `memory`: a
    dict of plain values that belongs to the caller; it is saved with each checkpoint and put back by `resume`.
    """

    def __init__(
        self, learner: nn.Module, loader: Loader, optimizer: OptimizerSettings, training: TrainingSettings, folder: Path
    ) -> None:
        """Put the learner on its device; nothing is read from or written to `folder` yet."""
        self.processor = choose(training.device, training.precision)
        self.learner = learner.to(self.processor.device)
        self.loader = loader
        self.settings = training
        self.folder = folder
        self.optimizer_settings = optimizer
        self.optimizer = optimizer.build(learner)
        self.weights = [weight for weight in learner.parameters() if weight.requires_grad]
        self.checkpoints = Checkpoints(folder / "checkpoints", keep=training.keep)
        self.step = 0
        self.cursor = Cursor()
        self.counters = Counters()
        self.memory: dict[str, Any] = {}
        self.notices: list[str] = []

    @property
    def finished(self) -> bool:
        """Return whether all steps are done."""
        return self.step >= self.settings.steps

    @property
    def sound(self) -> bool:
        """Return whether all weights are finite. A learning rate that is far too high can make them otherwise."""
        return all(bool(torch.isfinite(weight).all()) for weight in self.weights)

    def run(self) -> Iterator[Progress]:
        """Take the steps that are left, yielding after each; a checkpoint due at a step is written after the yield.

        Raises UserError when three steps in a row have a loss or a gradient that is not finite.
        """
        self.learner.train()
        every = self.settings.checkpoint_every
        with contextlib.closing(ahead(self.loader.steps(self.cursor))) as stream:
            while not self.finished:
                started = time.perf_counter()
                step = next(stream)
                self.counters.loader_seconds += time.perf_counter() - started
                yield self._advance(step, started)
                if every and (self.step % every == 0 or self.finished):
                    self.save()

    def save(self) -> bool:
        """Write a checkpoint of this moment; when that fails, note why, keep the ones before, and return False.

        Weights that are not finite are never written.
        """
        if not self.sound:
            self.notices.append(f"No checkpoint of step {self.step:,}: the weights have become infinite or undefined.")
            return False
        state = {
            "cursor": asdict(self.cursor),
            "counters": asdict(self.counters),
            "memory": self.memory,
            "circumstances": self._circumstances(),
        }
        weights, moments = tensors.weights(self.learner), tensors.moments(self.learner, self.optimizer)
        checkpoint = Checkpoint(step=self.step, weights=weights, optimizer=moments, state=state)
        try:
            self.checkpoints.save(checkpoint)
        except WriteError as error:
            last = max(self.checkpoints.steps(), default=None)
            kept = "there is none before it" if last is None else f"the one of step {last:,} is kept"
            self.notices.append(f"The checkpoint of step {self.step:,} could not be written; {kept}. {error}")
            return False
        return True

    def resume(self) -> bool:
        """Go back to the newest checkpoint that is whole; return False, changing nothing, if there is none yet.

        Raises UserError when all checkpoints are damaged, or are of another model.
        """
        self.checkpoints.tidy()
        checkpoint, messages = self.checkpoints.newest()
        self.notices += messages
        if checkpoint is None:
            return False
        tensors.put_weights(self.learner, checkpoint.weights)
        tensors.put_moments(self.learner, self.optimizer, checkpoint.optimizer)
        state = checkpoint.state
        self.step = checkpoint.step
        self.cursor = Cursor(**state["cursor"])
        self.counters = Counters(**state["counters"])
        self.memory.clear()
        self.memory.update(state["memory"])
        changes = difference(state["circumstances"], self._circumstances())
        if changes:
            self.notices.append(
                f"Since the checkpoint of step {self.step:,} was written this changed: {'; '.join(changes)}. The run "
                "goes on, but its weights may differ in the last bits from those of a run that was not stopped."
            )
        return True

    def evaluate(self, batches: Iterable[Batch]) -> dict[str, Mean]:
        """Return each objective's mean over some batches, without dropout; training is not disturbed."""
        training = self.learner.training
        self.learner.eval()
        sums = Sums()
        with torch.no_grad():
            for batch in batches:
                sums.expect(batch)
                sums.add(self._outcomes(batch))
        self.learner.train(training)
        return sums.read()[0]

    def _advance(self, step: Step, started: float) -> Progress:
        """Take one step, of which the loading began at `started`."""
        sums = self._gradients(step)
        norm = limit(self.weights, self.optimizer_settings.clip)
        means, [gradient_norm] = sums.read(norm.float())
        rate = self.optimizer_settings.rate(self.step, self.settings.steps)
        skipped = not all(map(math.isfinite, [gradient_norm, *(mean.loss for mean in means.values())]))
        if skipped:
            self._skip(step)
        else:
            self.counters.unusable = 0
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.cursor = step.cursor
        self.counters.tokens += sum(batch.tokens for batch in step.batches)
        self.counters.seconds += time.perf_counter() - started
        return Progress(
            step=self.step,
            steps=self.settings.steps,
            losses={name: mean.loss for name, mean in means.items()},
            accuracies={name: mean.accuracy for name, mean in means.items() if mean.accuracy is not None},
            learning_rate=rate,
            gradient_norm=gradient_norm,
            skipped=skipped,
            cursor=self.cursor,
            tokens=self.counters.tokens,
            seconds=self.counters.seconds,
            loader_seconds=self.counters.loader_seconds,
            skipped_steps=self.counters.skipped_steps,
        )

    def _gradients(self, step: Step) -> Sums:
        """Add up the gradient of a step over its micro-batches.

        The random numbers of dropout start from (seed, step, micro-batch), so that going on later needs no memory of
        them; the caller's own random numbers are left where they were.
        """
        sums = Sums()
        for batch in step.batches:
            sums.expect(batch)
        generator = self.processor.generator
        before = generator.get_state()
        for number, batch in enumerate(step.batches):
            generator.manual_seed(_seed(self.settings.seed, self.step, number))
            outcomes = self._outcomes(batch)
            sums.add(outcomes)
            shares = [outcome.total / sums.counts[name] for name, outcome in outcomes.items() if sums.counts[name]]
            if shares:
                torch.stack(shares).sum().backward()
        generator.set_state(before)
        return sums

    def _outcomes(self, batch: Batch) -> dict[str, Outcome]:
        with self.processor.autocast():
            return self.learner(batch.to(self.processor.device))

    def _skip(self, step: Step) -> None:
        """Count a step whose loss or gradient is not finite; the third in a row ends the run."""
        self.counters.skipped_steps += 1
        self.counters.unusable += 1
        if self.counters.unusable < PATIENCE:
            return
        path = self.folder / f"failed-step-{self.step + 1}.npz"
        save_batches(path, step.batches)
        raise UserError(
            f"The loss or its gradient was not finite in {PATIENCE} steps in a row, up to step {self.step + 1:,}. The "
            f"weights are untouched by them; the last batch is in {path}. A lower learning rate, a longer warm-up or "
            "precision fp32 may help: give one of them, and another folder for --out."
        )

    def _circumstances(self) -> dict[str, Any]:
        """Return what the last bits of the weights depend on besides the settings."""
        return {"threads": torch.get_num_threads(), "torch": torch.__version__, "processor": str(self.processor)}


def save_batches(path: Path, batches: Sequence[Batch]) -> None:
    """Write the columns and targets of some batches into an .npz file to look at: "0.ids", "0.mlm.labels" and so on."""
    columns: dict[str, np.ndarray] = {}
    for number, batch in enumerate(batches):
        columns[f"{number}.lengths"] = np.array(batch.lengths)
        columns |= _columns(f"{number}", batch)
        for name, target in batch.targets.items():
            columns |= _columns(f"{number}.{name}", target)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **columns)


def _columns(prefix: str, owner: object) -> dict[str, np.ndarray]:
    return {f"{prefix}.{name}": value.numpy() for name, value in vars(owner).items() if isinstance(value, Tensor)}


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
