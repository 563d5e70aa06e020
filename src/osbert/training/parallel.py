"""How weights and gradients are spread over processes: alone, replicated in each, or sharded over all.

All three give a step the same gradient, the sum over the processes, to rounding; the loss is divided by the labels of
the whole step beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

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


class Sharding:
    """Each process keeps an even share of every weight and its moments ("fsdp": torch's fully_shard, FSDP2).

    A layer's weights are gathered just before they are needed and dropped after; gradients are summed and dealt out
    after each micro-batch, so that no process ever holds them all. Weights travel in float32: in bf16 they would travel
    faster, but norms and biases would then compute in another precision than in one process.
    """

    def __init__(self, learner: nn.Module, group: Group, device: torch.device) -> None:
        """Shard `learner` in place: each member of its module lists, then what is left."""
        self.rank = group.rank
        mesh = init_device_mesh(device.type, (group.size,))
        stacked = [part for module in learner.modules() if isinstance(module, nn.ModuleList) for part in module]
        for part in (*stacked, learner):
            # Dropped after each pass: who looks at the learner between two passes finds shares, never whole weights.
            fully_shard(part, mesh=mesh, reshard_after_forward=True)
        for part in learner.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)  # gradients are summed, not averaged
                part.set_force_sum_reduction_for_comms(True)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the summed gradients of `loss` () to the shards'."""
        loss.backward()

    def give_up(self, *, owing: bool) -> bool:
        """Return False: the others wait in the middle of a pass for shares of weights, in an order of their own."""
        return False

    def whole(self, tensor: Tensor) -> Tensor:
        """Return all of a weight or of its moments on the CPU, in the first process; all must call."""
        if not isinstance(tensor, DTensor):
            return tensor
        whole = tensor.full_tensor()
        return torch.empty(0) if self.rank else whole.cpu()

    def own(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return this process's share of a whole tensor that it has itself."""
        if not isinstance(like, DTensor) or tensor.shape != like.shape:
            return tensor
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that is in this process."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def spread(learner: nn.Module, group: Group, kind: Spread, device: torch.device) -> Parallel:
    """Return the way to train `learner`, on its device already, in a group; sharding changes it in place."""
    if group.size == 1:
        return Alone()
    if kind == "fsdp":
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
