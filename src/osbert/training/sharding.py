"""Sharded training: each process has an even shard of all weights, gradients and moments."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import distribute_tensor

from osbert.training.distributed import Group
from osbert.training.sharded_tensors import is_dealt


class Sharding:
    """Each process keeps an even shard of every weight and its moments (torch's fully_shard, FSDP2).

    A layer's weights are gathered just before use and dropped after it. Gradients are summed and sharded after each
    micro-batch, so that no process ever has all of them. Weights are gathered in float32: bf16 would be faster, but
    norms and biases would then be computed in another precision than in one process.
    """

    sharded: ClassVar[bool] = True

    def __init__(self, learner: nn.Module, group: Group, device: torch.device) -> None:
        """Shard `learner` in place: each member of its module lists, then the remaining weights."""
        self.rank = group.rank
        mesh = init_device_mesh(device.type, (group.size,))
        stacked = [part for module in learner.modules() if isinstance(module, nn.ModuleList) for part in module]
        for part in (*stacked, learner):
            # Full weights are dropped after each pass, so that between two passes the learner always has shards.
            fully_shard(part, mesh=mesh, reshard_after_forward=True)
        for part in learner.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)  # gradients are summed, not averaged
                part.set_force_sum_reduction_for_comms(True)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the summed gradients of `loss` () to the shards'."""
        loss.backward()

    def give_up(self, *, owing: bool) -> bool:
        """Return False: the others wait for shards of weights in the middle of a pass."""
        return False

    def whole(self, tensor: Tensor) -> Tensor:
        """Return the full tensor of a weight or its moments, on the CPU of the first process. All must call."""
        if not is_dealt(tensor):
            return tensor
        # A collective operation: it must run in every process, even if only the first keeps the result.
        whole = tensor.full_tensor()
        return torch.empty(0, dtype=torch.float32) if self.rank else whole.cpu()

    def own(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return this process's shard of a full tensor; scalars such as step counts are not sharded."""
        if not is_dealt(like) or tensor.shape != like.shape:
            return tensor
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
