"""What of an encoder learns: all of it, its upper layers, or only what was put into it (adapters, low-rank changes)."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from osbert.models.contract import Backbone


def freeze_lowest(backbone: Backbone, layers: int) -> None:
    """Keep the embeddings and the lowest `layers` blocks as they are; nothing where `layers` is 0.

    Raises ValueError when there are not as many, and when layers above share a block with one of them.
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


def learn_only(backbone: Backbone, modules: Iterable[nn.Module]) -> None:
    """Keep the encoder as it is but for some modules inside it, the pooler, and recurrent layers on top."""
    freeze([backbone])
    for module in (*modules, *backbone.above):
        module.requires_grad_(True)


def freeze(modules: Iterable[nn.Module]) -> None:
    """Keep the weights of modules as they are: they get no gradient, and the optimiser has no moments of them."""
    for module in modules:
        module.requires_grad_(False)
