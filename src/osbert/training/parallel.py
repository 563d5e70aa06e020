"""How weights and gradients are spread over processes: alone, replicated in each, or sharded.

All of them give the same gradient up to rounding: the sum over the processes. The loss has been divided by the number
of labels of the whole step before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, distributed, nn

from osbert.training.distributed import Group, Parallel
from osbert.training.settings import Spread

BUCKET = 2**25
"""Bytes of a bucket of gradients: small enough that the first is sent early in the backward pass."""


class Replication(Parallel):
    """Every process has all weights ("ddp"); gradients are summed in buckets during the backward pass.

    torch's DistributedDataParallel does the same, but rearranges its buckets after the first step, which changes the
    order of summation: with three or more processes a resumed run would then differ in the last bits.
    """

    def __init__(self, weights: Iterable[nn.Parameter]) -> None:
        """Register hooks on the weights. Gradients arrive roughly in the reverse order of use."""
        self.buckets = list(_buckets(reversed(list(weights))))
        self.missing: list[int] = []
        self.sent: list[tuple[Tensor, distributed.Work]] = []
        for number, bucket in enumerate(self.buckets):
            for weight in bucket:
                # `number=number` binds the current value; a closure would see the last one.
                weight.register_post_accumulate_grad_hook(lambda _, number=number: self._count_arrival(number))

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of `loss` () to the weights'; with the `last` of a step they are summed over processes."""
        self.missing = [len(bucket) for bucket in self.buckets] if last else []
        loss.backward()
        if last:
            self._settle()

    def give_up(self, *, owing: bool) -> bool:
        """Send the buckets that have not been sent, for which the others wait."""
        self.missing = []
        if owing:
            self._settle()
        return True

    def _count_arrival(self, number: int) -> None:
        """Count a gradient of bucket `number`; send complete buckets, in the same order in all processes."""
        if not self.missing:
            return
        self.missing[number] -= 1
        # Collective operations must be in the same order in all processes, so a bucket waits for those before it.
        while len(self.sent) < len(self.buckets) and not self.missing[len(self.sent)]:
            self._send()

    def _send(self) -> None:
        bucket = self.buckets[len(self.sent)]
        # Weights without a gradient here may have one in another process, so they count as 0.
        flat = torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in bucket])
        self.sent.append((flat, distributed.all_reduce(flat, async_op=True)))

    def _settle(self) -> None:
        """Send the remaining buckets, with weights that the loss did not use, and replace the gradients by the sums."""
        try:
            while len(self.sent) < len(self.buckets):
                self._send()
            for bucket, (flat, work) in zip(self.buckets, self.sent, strict=True):
                work.wait()
                sums = flat.split([weight.numel() for weight in bucket])
                for weight, total in zip(bucket, sums, strict=True):
                    if weight.grad is not None:
                        weight.grad.copy_(total.view_as(weight))
        finally:
            self.missing = []
        self.sent = []  # not after an error: `give_up` must know what has been sent


def spread(learner: nn.Module, group: Group, kind: Spread, device: torch.device) -> Parallel:
    """Return the distribution of `learner`, which is on its device already. Sharding changes it in place."""
    if group.size == 1:
        return Parallel()
    if kind != "ddp":
        from osbert.training.sharding import Sharding  # which imports what a run of one process never needs

        return Sharding(learner, group, device)
    return Replication(weight for weight in learner.parameters() if weight.requires_grad)


def _buckets(weights: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    bucket: list[nn.Parameter] = []
    for weight in weights:
        bucket.append(weight)
        if sum(part.nbytes for part in bucket) >= BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
