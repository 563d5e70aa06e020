"""Gradients of a step: adds up the gradients of micro-batches in the weights and returns the sums of the losses.

The gradient of a step is the sum over objectives of weight x (loss summed over all micro-batches) / (labels in the
whole step): exactly the gradient of one large batch. With several processes the step is the union of their parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from osbert.data.batch import Batch, BatchTarget
from osbert.models.contract import Loss
from osbert.models.fast.threads import threads_for_batch
from osbert.models.random_numbers import hold_generator
from osbert.training.distributed import Group, Parallel
from osbert.training.processor import Processor
from osbert.training.progress import Census, Sums


class Gradients:
    """Runs a learner forwards and backwards on a processor, together with the other processes of its group."""

    def __init__(
        self, learner: nn.Module, processor: Processor, *, parallel: Parallel, group: Group, seed: int
    ) -> None:
        """Use `learner`, whose forward(batch) returns {objective: Loss}; `seed` is the seed of dropout."""
        self.learner = learner
        self.processor = processor
        self.parallel = parallel
        self.group = group
        self.seed = seed
        self.owing = False
        """Whether the other processes wait for this one's gradients, or will."""

    def add(self, batches: Sequence[Batch], *, number: int) -> Sums:
        """Add the gradient of step `number` of the run to the weights' gradients; return the sums of the losses.

        The random numbers of dropout are seeded by (seed, step, micro-batch), so that a checkpoint need not store their
        state. The caller's random state is restored.
        """
        census = self._count(batches)
        sums = Sums(census=census)
        self.owing = True
        # A notebook may have turned gradients off for its own work.
        with self.processor.repeatable(), torch.enable_grad(), hold_generator(self.processor.generator) as generator:
            for index, batch in enumerate(self._passes(batches, census)):
                # Different for each pass and rank, and a function of the step alone.
                key = (self.seed, number, index * self.group.size + self.group.rank)
                generator.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]))
                with threads_for_batch(batch.size):
                    with self.processor.autocast():
                        losses: dict[str, Loss] = self.learner(batch.to(self.processor.device))
                    sums.add(losses)
                    terms = [
                        # Skipping the factor of 1 keeps the bits of runs without weights.
                        (loss.total if loss.weight == 1 else loss.weight * loss.total) / census.counts[name]
                        for name, loss in losses.items()
                        if census.counts[name]
                    ]
                    if terms:
                        # One backward pass through the sum of all objectives.
                        self.parallel.backward(torch.stack(terms).sum(), last=index + 1 == census.passes)
        self.owing = False
        return sums

    def give_up(self) -> bool:
        """After an error in `add` or `measure`, let the other processes finish it without this one.

        Returns whether they can. Their results must then be discarded.
        """
        owing, self.owing = self.owing, False
        return self.parallel.give_up(owing=owing)

    def measure(self, batches: Sequence[Batch]) -> Sums:
        """Return the sums of the losses on some batches without gradients. Each process passes its own batches."""
        sums = Sums(census=self._count(batches))
        with self.processor.repeatable(), torch.no_grad():
            for batch in self._passes(batches, sums.census):
                with self.processor.autocast():
                    sums.add(self.learner(batch.to(self.processor.device)))
        return sums

    def _count(self, batches: Sequence[Batch]) -> Census:
        """Count the labels and passes of all processes' batches together."""
        census = Census.of(batches)
        return census if self.group.size == 1 else Census.combine(self.group.gather(census, "what a step holds"))

    def _passes(self, batches: Sequence[Batch], census: Census) -> Sequence[Batch]:
        """Pad the batches so that every process makes the same number of passes, with all objectives in each.

        Processes with sharded weights wait for each other in every layer of every pass. Missing batches and objectives
        are filled in by targets without labels, whose loss and gradients are 0.
        """
        if self.group.size == 1:
            return batches
        index = torch.empty(0, dtype=torch.int64)
        none = {
            name: BatchTarget(labels=torch.empty(0, dtype=kind), index=index, per_token=per_token)
            for name, (per_token, kind) in census.kinds.items()
        }
        filled = [replace(batch, targets={**none, **batch.targets}) for batch in batches]
        # A process without any batch borrows one of the first process. All take the same branch: `fewest` is of the
        # whole group.
        spare = batches[-1] if census.fewest else self.group.first(lambda: batches[0])
        return filled + [replace(spare, targets=none)] * (census.passes - len(batches))
