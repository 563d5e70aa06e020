"""Sharded tensors: which tensors are sharded over processes, and the shard of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_dealt(tensor: Tensor) -> TypeGuard[DTensor]:
    """Return whether a tensor is sharded over processes.

    Detected by an attribute that only DTensor has: importing that class takes most of a second in every run.
    """
    return hasattr(tensor, "placements")


def local(tensor: Tensor) -> Tensor:
    """Return this process's shard of a tensor; all of it if it is not sharded."""
    return tensor.to_local() if is_dealt(tensor) else tensor
