"""How weights and gradients are spread over processes: alone, replicated in each, or sharded over all.

All three give a step the same gradient, the sum over the processes, to rounding; the loss is divided by the labels of
the whole step beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import torch
from torch import Tensor, distributed, nn

from osbert.training.distributed import Group
from osbert.training.settings import Spread

BUCKET = 2**25
"""Bytes of gradients that are summed at once: few enough that the first are on their way early in the backward pass."""


class Parallel(Protocol):
    """What the trainer asks of a way to spread a learner."""

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of `loss` () to the weights'; with the `last` of a step they are summed over processes."""
        ...

    def give_up(self, *, owing: bool) -> bool:
        """After an error, let the others end a step or a look that this process has broken off; return if they can.

        `owing`: they wait for gradients, or will.
        """
        ...

    def whole(self, tensor: Tensor) -> Tensor:
        """Return all of a weight or of its moments in the first process; all must call."""
        ...

    def own(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return what this process keeps of a whole tensor that belongs to the weight `like`."""
        ...


class Alone:
    """One process: nothing is to be exchanged."""

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of `loss` () to the weights'."""
        loss.backward()

    def give_up(self, *, owing: bool) -> bool:
        """Return True: nobody waits."""
        return True

    def whole(self, tensor: Tensor) -> Tensor:
        """Return the tensor."""
        return tensor

    def own(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return the tensor."""
        return tensor


class Replication(Alone):
    """Every process has all weights ("ddp"); gradients are summed in buckets while the backward pass goes on.

    torch's DistributedDataParallel does the same, but lays its buckets out anew after the first step, which changes the
    order of summation: a run that is resumed among three processes or more then ends in other bits.
    """

    def __init__(self, weights: Iterable[nn.Parameter]) -> None:
        """Watch the weights: their gradients come in about the reverse of the order in which they are used."""
        self.buckets = list(_buckets(reversed(list(weights))))
        self.missing: list[int] = []
        self.sent: list[tuple[Tensor, distributed.Work]] = []
        for number, bucket in enumerate(self.buckets):
            for weight in bucket:
                weight.register_post_accumulate_grad_hook(lambda _, number=number: self._arrived(number))

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of `loss` () to the weights'; with the `last` of a step they are summed over processes."""
        self.missing = [len(bucket) for bucket in self.buckets] if last else []
        loss.backward()
        if last:
            self._settle()

    def give_up(self, *, owing: bool) -> bool:
        """Send the others what they wait for, the buckets that have not been sent."""
        self.missing = []
        if owing:
            self._settle()
        return True

    def _arrived(self, number: int) -> None:
        """Note a gradient of bucket `number`; send the buckets that are complete, in an order all processes keep."""
        if not self.missing:
            return
        self.missing[number] -= 1
        while len(self.sent) < len(self.buckets) and not self.missing[len(self.sent)]:
            self._send()

    def _send(self) -> None:
        bucket = self.buckets[len(self.sent)]
        flat = torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in bucket])
        self.sent.append((flat, distributed.all_reduce(flat, async_op=True)))

    def _settle(self) -> None:
        """Send what is left, of weights that had no part in the loss, and put the sums in the gradients' places."""
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
    """Return the way to train `learner`, on its device already, in a group; sharding changes it in place."""
    if group.size == 1:
        return Alone()
    if kind == "fsdp":
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
