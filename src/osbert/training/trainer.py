"""The training loop. It knows no model, objective or task, and can be killed and resumed at any moment.

A learner is any module whose forward(batch) gives {objective: Loss}. The gradient of a step is the sum over objectives
of weight x (loss summed over all micro-batches) / (labels in the whole step): exactly the gradient of one large batch.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from osbert.data.batch import Batch, write_batches
from osbert.data.step import Cursor, Loader, Pace, Step, ahead
from osbert.errors import UserError
from osbert.models.fast.threads import spin_remark
from osbert.recipe import difference
from osbert.training import memory, tensors
from osbert.training.adamw import give_row_gradients
from osbert.training.checkpoint import CHECKPOINTS, Checkpoint, Checkpoints, CheckpointWriter
from osbert.training.distributed import ALONE, Group, local
from osbert.training.gradients import Gradients
from osbert.training.optimizer import OptimizerSettings, limit
from osbert.training.parallel import spread
from osbert.training.processor import choose, compile_layers, compiles, keep_memory
from osbert.training.progress import Counters, Mean, Progress, Sums
from osbert.training.settings import TrainingSettings

PATIENCE = 3
"""Number of consecutive unusable steps that ends the run."""
MOMENTS = "It keeps two numbers for each weight: free some, take a smaller model, or several processes with fsdp."


class Trainer:
    """Trains a learner on a loader's steps with `for progress in trainer.run()`.

    `notices`: messages for the user, such as a checkpoint that could not be written; the caller shows them. `memory`:
    the caller's dict of JSON values, which checkpoints save and `resume` restores.
    """

    def __init__(
        self,
        learner: nn.Module,
        loader: Loader,
        optimizer: OptimizerSettings,
        training: TrainingSettings,
        folder: Path,
        group: Group = ALONE,
    ) -> None:
        """Move the learner to its device. `folder` is not read or written yet.

        In a group of processes `loader` must yield this process's part of each step.
        """
        self.group = group
        self.processor = choose(training.device, training.precision)
        if self.processor.device.type == "cpu":
            keep_memory()
            if group.size == 1:
                give_row_gradients(learner)
        self.learner = learner.to(self.processor.device)
        self.loader = loader
        self.settings = training
        self.folder = folder
        # Before the optimiser is built: sharding replaces the weights by shards.
        self.parallel = spread(self.learner, group, training.parallel, self.processor.device)
        compile_layers(self.learner, training.compile, self.processor.device)
        self.optimizer_settings = optimizer
        self.optimizer = optimizer.build(learner)
        self.weights = [weight for weight in learner.parameters() if weight.requires_grad]
        self.checkpoints = Checkpoints(folder / CHECKPOINTS, keep=training.keep)
        self.step = 0
        self.pace = Pace(planned=training.steps)
        self.gradients = Gradients(
            self.learner, self.processor, parallel=self.parallel, group=group, seed=training.seed
        )
        self.cursor = Cursor()
        self.counters = Counters()
        self.memory: dict[str, Any] = {}
        on_cpu = self.processor.device.type == "cpu"
        self.notices: list[str] = [*filter(None, [spin_remark()])] if on_cpu else []
        self.writer = CheckpointWriter(self.checkpoints, self.notices)
        self.whole = True
        """Whether the weights are those after exactly `step` steps; False while the optimiser changes them."""

    @property
    def finished(self) -> bool:
        """Return whether all steps are done."""
        return self.step >= self.pace.steps

    @property
    def behind(self) -> bool:
        """Return whether checkpoints that become due are written in the background."""
        chosen = self.settings.checkpoint_writing
        return chosen == "background" or (chosen == "auto" and self.processor.device.type == "cuda")

    @property
    def hopeless(self) -> bool:
        """Return whether too many consecutive steps were unusable, which ends the run."""
        return self.counters.unusable >= PATIENCE

    @property
    def sound(self) -> bool:
        """Return whether all weights are finite in all processes; they may not be if the learning rate is too high."""
        finite = all(bool(torch.isfinite(local(weight)).all()) for weight in self.weights)
        return all(self.group.gather(finite, "the weights"))

    def run(self) -> Generator[Progress, None, None]:
        """Take the remaining steps, yielding after each. A checkpoint that is due is written after the yield.

        If the caller sets another `pace` after a step, the loader's stream is restarted at the next step.

        Raises UserError if three consecutive steps have a loss or a gradient that is not finite.
        """
        self.learner.train()
        every = self.settings.checkpoint_every
        # Whoever runs the steps may remove files or give up the lock afterwards, so nothing is being written then.
        with contextlib.ExitStack() as ending:
            ending.callback(self.writer.settle)
            while not self.finished:
                # Closing the stream ends the thread that prepares the next step, also if the caller breaks the loop.
                pace, start = self.pace, replace(self.cursor, step=self.step)
                with contextlib.closing(ahead(self.loader.steps(start))) as stream:
                    while not self.finished and self.pace is pace:
                        started = time.perf_counter()
                        step = self._next(stream)
                        self.counters.loader_seconds += time.perf_counter() - started
                        yield self._advance(step, started)
                        if every and (self.step % every == 0 or self.finished):
                            self.save(behind=self.behind and not self.finished)

    def save(self, *, behind: bool = False) -> bool:
        """Write a checkpoint. If that fails, add a notice, keep the earlier ones, and return False.

        All processes must call; the first one writes. Weights that are not finite are never written. `behind`: only
        copy the state, and write it while training goes on; a failure becomes a notice of the next save.
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
        if self.parallel.sharded:
            shards = tensors.shards(self.learner, self.group, self.optimizer)
            return self.writer.write_shards(self.group, self.step, shards, state)
        weights = tensors.weights(self.learner, self.parallel)
        if self.group.size > 1:
            weights |= tensors.memory(self.learner, self.group)
        moments = tensors.moments(self.learner, self.parallel, self.optimizer)
        checkpoint = Checkpoint(step=self.step, weights=weights, optimizer=moments, state=state)
        return self.group.first(partial(self.writer.begin if behind else self.writer.write, checkpoint))

    def resume(self) -> bool:
        """Restore the newest valid checkpoint. Return False and change nothing if there is none.

        Raises UserError if all checkpoints are damaged, or if the newest belongs to another model.
        """
        step = self.group.first(self._find_checkpoint)
        if step is None:
            return False
        shards = self.checkpoints.shards(step)
        if self.parallel.sharded and shards is not None:
            tensors.put_shards(self.learner, self.parallel, self.optimizer, shards)
        else:
            checkpoint = self.checkpoints.read(step)
            tensors.put_weights(self.learner, self.parallel, checkpoint.weights)
            tensors.put_moments(self.learner, self.parallel, self.optimizer, checkpoint.optimizer)
        state = self.checkpoints.state(step)
        self.step = state["step"]
        self.cursor = Cursor(**state["cursor"])
        self.counters = Counters(**state["counters"])
        # In place: the caller holds the same dict.
        self.memory.clear()
        self.memory.update(state["memory"])
        before, now = state["circumstances"], self._circumstances()
        changes = difference(before, {name: value for name, value in now.items() if name in before})
        if changes:
            self.notices.append(
                f"Since the checkpoint of step {self.step:,} was written this changed: {'; '.join(changes)}. The run "
                "goes on, but its weights may differ in the last bits from those of a run that was not stopped."
            )
        return True

    def evaluate(self, batches: Iterable[Batch]) -> dict[str, Mean]:
        """Return each objective's mean over some batches, without dropout. The state of training is not changed.

        In a group each process passes its own part, as its loader makes it.
        """
        training = self.learner.training
        self.learner.eval()
        try:
            sums = self._sparing(self.gradients.measure, list(batches))
        finally:
            self.learner.train(training)
        return sums.read(self.group)[0]

    def _next(self, stream: Iterator[Step]) -> Step:
        """Return the next step. If the data cannot be read any more, write a checkpoint before raising the error."""
        try:
            advice = "Free some, or give a smaller --data.pool or fewer --data.workers."
            with memory.explain_shortage("the loader", advice):
                return next(stream)
        except (UserError, OSError):
            if self.step and self.group.size == 1:  # in a group all would have to write it together
                self.save()
            raise

    def _advance(self, step: Step, started: float) -> Progress:
        """Take one step, whose loading began at `started` (perf_counter)."""
        sums = self._sparing(partial(self.gradients.add, number=self.step), step.batches)
        # Queued on the device; sums.read() fetches the norm together with the losses.
        norm = limit(self.weights, self.optimizer_settings.clip)
        means, [gradient_norm] = sums.read(self.group, norm.float())
        rate_factor = self.optimizer_settings.rate_factor(self.pace.place(self.step), self.pace.planned)
        # The same values in all processes, so all skip or none does.
        skipped = not all(map(math.isfinite, [gradient_norm, *(mean.loss for mean in means.values())]))
        self.whole = False
        if skipped:
            self._skip(step)
        else:
            self.counters.unusable = 0
            for group in self.optimizer.param_groups:
                group["lr"] = group["peak"] * rate_factor
            with memory.explain_shortage("the optimiser", MOMENTS), self.processor.autocast():  # for Muon's products
                self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.cursor = step.cursor
        self.counters.tokens += sums.census.tokens
        self.counters.seconds += time.perf_counter() - started
        self.whole = True
        return Progress(
            step=self.step,
            steps=self.pace.steps,
            losses={name: mean.loss for name, mean in means.items()},
            weights={name: mean.weight for name, mean in means.items()},
            accuracies={name: mean.accuracy for name, mean in means.items() if mean.accuracy is not None},
            ratios={f"{name}.{key}": value for name, mean in means.items() for key, value in mean.ratios.items()},
            learning_rate=self.optimizer_settings.learning_rate * rate_factor,
            gradient_norm=gradient_norm,
            skipped=skipped,
            cursor=self.cursor,
            tokens=self.counters.tokens,
            seconds=self.counters.seconds,
            loader_seconds=self.counters.loader_seconds,
            skipped_steps=self.counters.skipped_steps,
        )

    def _sparing(self, work: Callable[[Sequence[Batch]], Sums], batches: Sequence[Batch]) -> Sums:
        """Do some work on batches. If memory runs out, repeat it on halves, and keep to halves from then on.

        In a group all processes do so. Raises UserError if a single sequence is too large, after writing a checkpoint,
        and if the processes cannot abandon the work together.
        """
        while True:
            given = memory.parts(batches, self.counters.halvings) if self.counters.halvings else batches
            sums, message = None, ""
            try:
                sums = work(given)
            except (RuntimeError, MemoryError) as error:
                if not memory.ran_out(error):
                    raise
                message = memory.first_line(error)
            # Only now, as the traceback of the error keeps the tensors of the work alive.
            short = None if sums is not None else self._shortage(given, message)
            # Every process reports, with None if its memory was enough, so that all repeat the work or none does.
            shortages = self.group.gather(short, "want of memory")
            if sums is not None and not any(shortages):
                return sums
            self._halve(shortages)

    def _shortage(self, batches: Sequence[Batch], message: str) -> memory.Shortage:
        """Clean up after memory ran out in this process, so that all can go on together; describe the shortage."""
        self.optimizer.zero_grad()
        memory.release()
        shortage = memory.Shortage.of(batches, message)
        if not self.gradients.give_up():
            raise UserError(
                f"Memory ran out in process {self.group.rank} ({message}). Set --data.micro_tokens to "
                f"{max(1, shortage.half)} or less; the gradients stay the same up to rounding. The same command "
                "then continues from the last checkpoint.",
                code="out-of-memory",
            )
        return shortage

    def _halve(self, shortages: Sequence[memory.Shortage | None]) -> None:
        """Halve micro-batches from now on, because the memory of some processes was too small."""
        self.optimizer.zero_grad()
        rank, worst = max(
            ((rank, shortage) for rank, shortage in enumerate(shortages) if shortage),
            # A batch that cannot be halved decides first.
            key=lambda candidate: (candidate[1].single, candidate[1].half),
        )
        message = f"in process {rank}: {worst.message}" if self.group.size > 1 else worst.message
        if worst.single:
            self.save()
            what = "a step, which is one pass," if worst.whole else "a single sequence"
            smaller = "a smaller model or shorter sequences" + (" or a smaller batch" if worst.whole else "")
            self.group.end(
                f"Memory does not suffice for {what} of {worst.most:,} tokens ({message}). Free some, or take "
                f"{smaller}. The same command goes on from the last checkpoint.",
                code="out-of-memory",
            )
        self.counters.halvings += 1
        self.notices.append(
            f"Memory ran out at step {self.step + 1:,} ({message}). From now on a pass through the model takes at most "
            f"about {worst.half:,} tokens, more passes a step: the gradients are the same, to rounding."
        )

    def _skip(self, step: Step) -> None:
        """Count a step whose loss or gradient is not finite; end the run at the third consecutive one."""
        self.counters.skipped_steps += 1
        self.counters.unusable += 1
        if not self.hopeless:
            return
        path = self.folder / f"failed-step-{self.step + 1}{f'-process-{self.group.rank}' * (self.group.size > 1)}.npz"
        write_batches(path, step.batches)
        self.group.end(
            f"The loss or its gradient was not finite in {PATIENCE} steps in a row, up to step {self.step + 1:,}. The "
            f"weights are untouched by them; the last batch is in {path}. A lower learning rate, a longer warm-up or "
            "precision fp32 may help.",
            code="training-diverged",
        )

    def _circumstances(self) -> dict[str, Any]:
        """Return the facts besides the settings on which the last bits of the weights depend."""
        circumstances = {
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "processor": str(self.processor),
            "model": self.processor.model,
            "compile": compiles(self.settings.compile, self.processor.device),
            "processes": self.group.size,
        }
        if self.group.size > 1:
            circumstances["parallel"] = self.settings.parallel
        return circumstances

    def _find_checkpoint(self) -> int | None:
        """Return the step of the newest valid checkpoint, None if there is none, after removing incomplete ones."""
        self.checkpoints.tidy()
        step, messages = self.checkpoints.newest()
        self.notices += messages
        return step
