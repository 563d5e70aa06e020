"""New modules: built on torch's "meta" device, with shapes and no memory, then given memory and initial weights.

Also copies of modules that share the weights, for work that hooks modules or switches their modes.

Encoders start with truncated normals, the output layers of heads with untruncated ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from osbert.models.random_numbers import SinglePrecision


@torch.no_grad()
def initialise(module: nn.Module, deviation: float) -> None:
    """Initialise all weights of `module`: N(0, deviation) truncated at two deviations, biases 0, norms 1.

    Recurrent layers have torch's initial weights: uniform in [-1 / sqrt(width), 1 / sqrt(width)].
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            _draw_truncated(part.weight, deviation)
        elif isinstance(part, nn.LayerNorm | nn.RMSNorm):
            nn.init.ones_(part.weight)
        elif isinstance(part, nn.LSTM | nn.LSTMCell):
            part.reset_parameters()
        if isinstance(part, nn.Linear | nn.LayerNorm) and part.bias is not None:
            nn.init.zeros_(part.bias)


@torch.no_grad()
def initialise_scores(layer: nn.Linear, deviation: float) -> None:
    """Initialise the output layer of a head: N(0, deviation), biases 0, as in transformers.

    google-research/bert truncates this normal, too, at two deviations, which reduces its standard deviation to 0.88 of
    the setting; with it taggers learned later in the few steps of fine-tuning (docs/results.md).
    """
    nn.init.normal_(layer.weight, 0, deviation)
    nn.init.zeros_(layer.bias)


def _draw_truncated(weight: Tensor, deviation: float) -> None:
    """Draw from the normal, and redraw values beyond two deviations; trunc_normal_ takes several times longer."""
    weight.normal_(0, deviation)
    # About 5 % lie outside; each round redraws only those that still do.
    outside = torch.nonzero(weight.view(-1).abs() > 2 * deviation).view(-1)
    while len(outside):
        drawn = torch.empty(len(outside), dtype=weight.dtype, device=weight.device).normal_(0, deviation)
        weight.view(-1)[outside] = drawn
        outside = outside[drawn.abs() > 2 * deviation]


Made = TypeVar("Made", bound=nn.Module)


class FirstValuesLeftOut(SinglePrecision):
    """A mode in which torch.nn.init does nothing, besides. One mode: of two inside each other both see each call."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(function, "__module__", "") == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return super().__torch_function__(function, types, args, kwargs)


@contextmanager
def without_memory() -> Iterator[None]:
    """Create tensors with a shape only inside the block.

    Initialising a tensor without memory does nothing, but imports torch._dynamo, which takes as long as importing
    torch. So it is skipped.
    """
    with torch.device("meta"), FirstValuesLeftOut():
        yield


def with_memory(module: Made) -> Made:
    """Give the tensors of a module memory on the CPU, without values, and return the module.

    As nn.Module.to_empty does, whose empty_like of a tensor without memory imports sympy, for half a second.
    """
    module._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"))
    return module


def copy_modules(module: Made) -> Made:
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
