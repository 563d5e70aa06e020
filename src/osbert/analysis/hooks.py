"""Interventions: a model computes with other values than its own at some place. No code of the models knows of them.

Each is a hook on modules of the model, for the time of a block. Layers that share their weights (ALBERT) are one
module, so that a hook counts its calls to know which layer it is in: inside the block every pass goes through all
layers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

from torch import Tensor, nn

from osbert.models.contract import Backbone

Change = Callable[[Tensor], Tensor]
"""Gives the values that stand in place of a module's own, of the same shape."""


@contextlib.contextmanager
def gated_heads(backbone: Backbone, gates: Tensor) -> Iterator[None]:
    """Multiply what each head puts out by its gate inside the block, for families that attend.

    `gates`: (L, H), or (L, N, H) with a gate for each token of the batch. 1 changes nothing, 0 takes a head away, and
    gradients flow into the gates (Michel et al. 2019, section 2.2).
    """

    def gate(layer: int) -> Change:
        factors = gates[layer].unsqueeze(-1)  # (H, 1) or (N, H, 1)
        return lambda values: (values.unflatten(-1, (gates.shape[-1], -1)) * factors).flatten(-2)

    modules = backbone.mixers
    with _changed(modules, {layer: gate(layer) for layer in range(len(modules))}, inputs=True):
        yield


@contextlib.contextmanager
def changed_states(backbone: Backbone, changes: Mapping[int, Change]) -> Iterator[None]:
    """Replace what layers put out (N, D) inside the block; layer 0 is the embeddings.

    The change of the last layer comes before what stands above all layers, such as a last norm.
    """
    with _changed(backbone.stack, changes, inputs=False):
        yield


@contextlib.contextmanager
def _changed(modules: Sequence[nn.Module], changes: Mapping[int, Change], *, inputs: bool) -> Iterator[None]:
    """Change what modules read or what they put out, each by the number of its layer."""
    handles = []
    for module in dict.fromkeys(modules):
        calls = cycle([layer for layer, one in enumerate(modules) if one is module])

        def change(calls: Iterator[int], values: Tensor) -> Tensor:
            made = changes.get(next(calls))
            return values if made is None else made(values)

        def before(_: nn.Module, given: tuple[Any, ...], calls: Iterator[int] = calls) -> tuple[Any, ...]:
            return change(calls, given[0]), *given[1:]

        def after(_: nn.Module, __: Any, output: Tensor, calls: Iterator[int] = calls) -> Tensor:
            return change(calls, output)

        handles.append(module.register_forward_pre_hook(before) if inputs else module.register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
