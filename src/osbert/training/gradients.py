"""Gradients of a step: micro-batches in, summed gradients in the weights and the sums of the losses out.

The gradient of a step is the sum over objectives of weight x (loss summed over all micro-batches) / (labels in the
whole step): the very gradient of one large batch. With several processes the step is what all of them have of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from osbert.data.batch import Batch, BatchTarget
from osbert.models.fast.threads import threads_for_batch
from osbert.models.random_numbers import restored
from osbert.training.distributed import Group
from osbert.training.parallel import Parallel
from osbert.training.processor import Processor
from osbert.training.progress import Census, Outcome, Sums


class Gradients:
    """Runs a learner forwards and backwards on a processor, together with the other processes of its group."""

    def __init__(
        self, learner: nn.Module, processor: Processor, *, parallel: Parallel, group: Group, seed: int
    ) -> None:
        """Work on `learner`, whose forward(batch) gives {objective: Loss}; `seed` decides the dropout."""
        self.learner = learner
        self.processor = processor
        self.parallel = parallel
        self.group = group
        self.seed = seed
        self.owing = False
        """Whether the other processes are waiting for this one's gradients, or will."""

    def add(self, batches: Sequence[Batch], *, number: int) -> Sums:
        """Add the gradient of a step, the run's `number`th, to the weights' gradients; return the losses' sums.

        The random numbers of dropout start from (seed, step, micro-batch), so that going on later needs no memory of
        them; the caller's own random numbers are left where they were.
        """
        sums = Sums(census=self.census(batches))
        self.owing = True
        with restored(self.processor.generator) as generator:
            for place, batch in enumerate(self._passes(batches, sums.census)):
                generator.manual_seed(_seed(self.seed, number, place * self.group.size + self.group.rank))
                with threads_for_batch(batch.size):
                    outcomes = self.outcomes(batch)
                    sums.add(outcomes)
                    self._descend(outcomes, sums.census, last=place + 1 == sums.census.passes)
        self.owing = False
        return sums

    def give_up(self) -> bool:
        """After an error in `add` or `measure`, let the other processes come to the end of it without this one.

        Returns whether they can; what they then have is of no use.
        """
        owing, self.owing = self.owing, False
        return self.parallel.give_up(owing=owing)

    def measure(self, batches: Sequence[Batch]) -> Sums:
        """Return the sums of the losses on some batches, of which each process has its own."""
        sums = Sums(census=self.census(batches))
        with torch.no_grad():
            for batch in self._passes(batches, sums.census):
                sums.add(self.outcomes(batch))
        return sums

    def census(self, batches: Sequence[Batch]) -> Census:
        """Return what all processes' batches hold together."""
        return Census.joined(self.group.gathered(Census.of(batches), "what a step holds"))

    def outcomes(self, batch: Batch) -> dict[str, Outcome]:
        """Return each objective's loss on a batch, in the processor's precision."""
        with self.processor.autocast():
            return self.learner(batch.to(self.processor.device))

    def _descend(self, outcomes: Mapping[str, Outcome], census: Census, *, last: bool) -> None:
        counts = census.counts
        shares = [
            outcome.total / counts[name] if outcome.weight == 1 else outcome.weight * outcome.total / counts[name]
            for name, outcome in outcomes.items()
            if counts[name]
        ]
        if shares:
            self.parallel.backward(torch.stack(shares).sum(), last=last)

    def _passes(self, batches: Sequence[Batch], census: Census) -> Sequence[Batch]:
        """Return the batches so that every process makes as many passes, each with all the step's objectives.

        Processes with sharded weights wait for each other in every pass and layer. What a process lacks is made up
        by targets without labels, whose loss and gradients are 0.
        """
        if self.group.size == 1:
            return batches
        none = {name: _no_labels(per_token, kind) for name, (per_token, kind) in census.kinds.items()}
        filled = [replace(batch, targets={**none, **batch.targets}) for batch in batches]
        spare = batches[-1] if census.fewest else self.group.first(lambda: batches[0])
        return filled + [replace(spare, targets=none)] * (census.passes - len(batches))


def _no_labels(per_token: bool, kind: torch.dtype) -> BatchTarget:
    return BatchTarget(labels=torch.empty(0, dtype=kind), index=torch.empty(0, dtype=torch.int64), per_token=per_token)


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
