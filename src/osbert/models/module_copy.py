"""Copies of a module tree that compute with the same weights, for work that hooks modules or switches their modes."""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from typing import Any, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def copy_modules(module: M) -> M:
    """Return a copy in evaluation mode that shares all weights and buffers, but receives no gradients for them.

    Hooks and modes of the copy are its own, so calls in other threads that use the original do not see them. The copy
    costs no memory for weights.
    """
    # What the memo of deepcopy holds is not copied: in place of each tensor the copy has one on the same memory.
    shared: dict[int, Any] = {}
    for tensor in chain(module.parameters(), module.buffers()):
        detached = tensor.detach()
        shared[id(tensor)] = (
            nn.Parameter(detached, requires_grad=False) if isinstance(tensor, nn.Parameter) else detached
        )
    return deepcopy(module, shared).eval()
