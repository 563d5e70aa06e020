"""Freezing: all of an encoder is trained, its upper layers, or only added modules (adapters, LoRA)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from osbert.models.contract import Backbone
from osbert.models.transformer.added_layers import Adapter


def freeze_lowest(backbone: Backbone, layers: int) -> None:
    """Freeze the embeddings and the lowest `layers` blocks; do nothing if `layers` is 0.

    Raises ValueError if there are fewer blocks, or if a layer above shares a block with one of them.
    """
    embeddings, *blocks = backbone.stack
    if layers > len(blocks):
        raise ValueError(f"{layers} layers cannot be frozen: there are {len(blocks)}")
    if not set(blocks[:layers]).isdisjoint(blocks[layers:]):
        count = len(set(blocks))
        raise ValueError(
            f"{layers} layers cannot be frozen alone: those above share their blocks (distinct is {count}, so that "
            f"{len(blocks) // count} neighbours have one). Freeze a multiple of {len(blocks) // count}"
        )
    if layers:
        freeze([embeddings, *blocks[:layers]])


def trainable_modules(backbone: Backbone) -> Iterator[nn.Module]:
    """Yield the trained modules of an encoder with adapters: adapters and norms, but not the norm of embeddings."""
    below = set(backbone.stack[0].modules())
    for module in backbone.modules():
        if isinstance(module, Adapter | nn.LayerNorm | nn.RMSNorm) and module not in below:
            yield module


def learn_only(backbone: Backbone, modules: Iterable[nn.Module]) -> None:
    """Freeze the encoder except `modules`, the pooler, and recurrent layers on top."""
    freeze([backbone])
    for module in (*modules, *backbone.above):
        module.requires_grad_(True)


def freeze(modules: Iterable[nn.Module]) -> None:
    """Freeze the weights of modules: they get no gradient, and the optimiser keeps no moments for them."""
    for module in modules:
        module.requires_grad_(False)
