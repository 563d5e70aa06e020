"""Tensors of which each process has a share: which they are, and the share of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_dealt(tensor: Tensor) -> TypeGuard[DTensor]:
    """Return whether each process has a share of a tensor.

    Told by an attribute that DTensor alone has: importing that class takes most of a second in every run.
    """
    return hasattr(tensor, "placements")


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that is in this process."""
    return tensor.to_local() if is_dealt(tensor) else tensor
