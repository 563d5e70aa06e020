"""Sharded training: each process has an even shard of all weights, gradients and moments, and writes its shards.

The files are those of torch.distributed.checkpoint, in its form for safetensors (its other one is a pickle, which runs
what it contains). The header of each file says where its shards lie within the full tensors, so any number of processes
reads them, and no process ever needs a full tensor.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from osbert.files import sync
from osbert.training.distributed import Group, Parallel, is_dealt, shard_like


class Sharding(Parallel):
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
        return shard_like(tensor.to(like.device), like) if tensor.shape == like.shape else tensor


def write_shards(folder: Path, rank: int, tensors: Mapping[str, Tensor]) -> list[Path]:
    """Write this process's shards; return its files, none if all of its shards are empty. All processes call.

    A tensor that is not sharded must be the same in all processes, and one of them writes it. Raises OSError in all
    processes if the write fails in one.
    """
    try:
        checkpoint.save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except CheckpointException as error:  # a BaseException of torch's
        raise OSError(
            "; ".join(f"process {process}: {failure[0]}" for process, failure in error.failures.items())
        ) from error
    sync(folder)
    return sorted(folder.glob(f"shard-{rank + 1:05d}-*"))


def read_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, sharded ones too, with what other shards of them hold in files. All processes call."""
    _quietly_load(folder, tensors, no_dist=False)


def read_whole(folder: Path) -> dict[str, Tensor]:
    """Return all tensors in full, in this process alone."""
    tensors = {name: torch.empty(size, dtype=dtype) for name, (size, dtype) in shapes(folder).items()}
    _quietly_load(folder, tensors, no_dist=True)
    return tensors


def shapes(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Return shape and type of each full tensor."""
    tensors = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {
        name: (metadata.size, metadata.properties.dtype)
        for name, metadata in tensors.items()
        if isinstance(metadata, TensorStorageMetadata)
    }


def _quietly_load(folder: Path, tensors: Mapping[str, Tensor], *, no_dist: bool) -> None:
    with warnings.catch_warnings():
        # That a single process loads is what is meant here.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        checkpoint.load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=no_dist)
