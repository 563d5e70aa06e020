"""Building a model on torch's "meta" device: shapes without memory, and so without initial values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from osbert.models.random_numbers import SinglePrecision

Made = TypeVar("Made", bound=nn.Module)


class FirstValuesLeftOut(TorchFunctionMode):
    """A mode in which torch.nn.init does nothing."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the function; for one of torch.nn.init, return its tensor unchanged."""
        named = dict(kwargs or {})
        if getattr(function, "__module__", "") == "torch.nn.init":
            return named["tensor"] if "tensor" in named else args[0]
        return function(*args, **named)


@contextmanager
def without_memory() -> Iterator[None]:
    """Create tensors with a shape only inside the block.

    Initialising a tensor without memory does nothing, but imports torch._dynamo, which takes as long as importing
    torch. So it is skipped.
    """
    with torch.device("meta"), FirstValuesLeftOut(), SinglePrecision():
        yield


def with_memory(module: Made) -> Made:
    """Give the tensors of a module memory on the CPU, without values, and return the module.

    As nn.Module.to_empty does, whose empty_like of a tensor without memory imports sympy, for half a second.
    """
    module._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"))
    return module
