"""Building a model on torch's "meta" device: sizes without memory, so without first values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class FirstValuesLeftOut(TorchFunctionMode):
    """A mode in which torch.nn.init does nothing."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the function, or return the tensor that it would fill as it is."""
        named = dict(kwargs or {})
        if getattr(function, "__module__", "") == "torch.nn.init":
            return named["tensor"] if "tensor" in named else args[0]
        return function(*args, **named)


@contextmanager
def without_memory() -> Iterator[None]:
    """Make tensors that have sizes only.

    Random numbers for a tensor without memory are no numbers, but asking for them imports torch._dynamo, which takes
    as long as importing torch: every command that opens a model would pay for it.
    """
    with torch.device("meta"), FirstValuesLeftOut():
        yield
