"""Interventions: replace values inside a model while it computes, without any code in the models for it.

Each is a set of hooks on modules, active inside a with-block. Layers that share their weights (ALBERT) are one module,
whose hook counts its calls to know the layer. So inside the block every forward pass must run through all layers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

from torch import Tensor, nn

from osbert.models.contract import Backbone

Change = Callable[[Tensor], Tensor]
"""Maps a tensor of a module to its replacement of the same shape."""


@contextlib.contextmanager
def gated_heads(backbone: Backbone, gates: Tensor) -> Iterator[None]:
    """Multiply the output of each head by its gate inside the block, in a model with attention.

    `gates`: (L, H), or (L, N, H) with a gate for each token of the batch. 1 changes nothing and 0 removes a head.
    Gradients flow into the gates (Michel et al. 2019, section 2.2).
    """

    def gate(layer: int) -> Change:
        factors = gates[layer].unsqueeze(-1)  # (H, 1) or (N, H, 1)
        # (N, H * K) -> (N, H, K): the heads are adjacent slices of the last axis.
        return lambda values: (values.unflatten(-1, (gates.shape[-1], -1)) * factors).flatten(-2)

    modules = backbone.mixers
    with _changed(modules, {layer: gate(layer) for layer in range(len(modules))}, inputs=True):
        yield


@contextlib.contextmanager
def changed_states(backbone: Backbone, changes: Mapping[int, Change]) -> Iterator[None]:
    """Replace the outputs (N, D) of layers inside the block, by layer; layer 0 is the embeddings.

    The change of the last layer applies before whatever follows the layers, such as a final norm.
    """
    with _changed(backbone.stack, changes, inputs=False):
        yield


@contextlib.contextmanager
def _changed(modules: Sequence[nn.Module], changes: Mapping[int, Change], *, inputs: bool) -> Iterator[None]:
    """Change the input or the output of modules, by the number of their layer."""
    handles = []
    # Each distinct module gets one hook; `cycle` over its layers restarts with every forward pass.
    for module in dict.fromkeys(modules):
        calls = cycle([layer for layer, one in enumerate(modules) if one is module])

        def change(calls: Iterator[int], values: Tensor) -> Tensor:
            made = changes.get(next(calls))
            return values if made is None else made(values)

        # `calls` is a default argument, so that each hook keeps its own counter.
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
