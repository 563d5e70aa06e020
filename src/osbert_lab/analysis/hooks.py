"""Interventions: replace values inside a model while it computes, without any code in the models for it.

Each returns a copy of the model with hooks on its modules (models/initialisation.py), so that no other use of the model
sees them. Layers that share their weights (ALBERT) are one module, whose hook counts its calls to know the layer. So
every forward pass of the copy must run through all layers, in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

from torch import Tensor, nn

from osbert.models.contract import Learner
from osbert.models.initialisation import copy_modules

Change = Callable[[Tensor], Tensor]
"""Maps a tensor of a module to its replacement of the same shape."""


def gate_heads(learner: Learner, gates: Tensor) -> Learner:
    """Return a copy that multiplies the output of each attention head by its gate.

    `gates`: (L, H), or (L, N, H) with a gate for each token of the batch. 1 changes nothing and 0 removes a head.
    Gradients flow into the gates (Michel et al. 2019, section 2.2).
    """

    def gate(layer: int) -> Change:
        # (N, H * K) -> (N, H, K): the heads are adjacent slices of the last axis; gates (H, 1) or (N, H, 1).
        return lambda values: (values.unflatten(-1, (gates.shape[-1], -1)) * gates[layer].unsqueeze(-1)).flatten(-2)

    copy = copy_modules(learner)
    modules = copy.backbone.mixers
    _hook(modules, {layer: gate(layer) for layer in range(len(modules))}, inputs=True)
    return copy


def change_states(learner: Learner, changes: Mapping[int, Change]) -> Learner:
    """Return a copy that replaces the outputs (N, D) of layers, by layer; layer 0 is the embeddings.

    `changes` is read in every forward pass, so its entries may be set between two. The change of the last layer applies
    before whatever follows the layers, such as a final norm.
    """
    copy = copy_modules(learner)
    _hook(copy.backbone.stack, changes, inputs=False)
    return copy


def _hook(modules: Sequence[nn.Module], changes: Mapping[int, Change], *, inputs: bool) -> None:
    """Change the input or the output of modules, by the number of their layer."""
    # Each distinct module gets one hook; `cycle` over its layers restarts with every forward pass.
    for module in dict.fromkeys(modules):
        calls = cycle([layer for layer, one in enumerate(modules) if one is module])

        def change(calls: Iterator[int], values: Tensor) -> Tensor:
            replace = changes.get(next(calls))
            return values if replace is None else replace(values)

        # `calls` is a default argument, so that each hook keeps its own counter.
        def before(_: nn.Module, given: tuple[Any, ...], calls: Iterator[int] = calls) -> tuple[Any, ...]:
            return change(calls, given[0]), *given[1:]

        def after(_: nn.Module, __: Any, output: Tensor, calls: Iterator[int] = calls) -> Tensor:
            return change(calls, output)

        if inputs:
            module.register_forward_pre_hook(before)
        else:
            module.register_forward_hook(after)
