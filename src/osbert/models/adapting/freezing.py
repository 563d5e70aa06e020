"""What of an encoder learns: all of it, its upper layers, or only what was put into it (adapters, low-rank changes)."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from osbert.models.families.transformer import Transformer


def freeze_lowest(backbone: Transformer, layers: int) -> None:
    """Keep the embeddings and the lowest `layers` blocks as they are; nothing where `layers` is 0.

    Raises ValueError when there are not as many.
    """
    if layers > len(backbone.blocks):
        raise ValueError(f"{layers} layers cannot be frozen: there are {len(backbone.blocks)}")
    if layers:
        freeze([backbone.embeddings, *list(backbone.blocks)[:layers]])


def learn_only(backbone: Transformer, modules: Iterable[nn.Module]) -> None:
    """Keep the encoder as it is but for some modules inside it, the pooler, and recurrent layers on top."""
    freeze([backbone])
    above = [backbone.pooler] if backbone.recurrent is None else [backbone.pooler, backbone.recurrent]
    for module in (*modules, *above):
        module.requires_grad_(True)


def freeze(modules: Iterable[nn.Module]) -> None:
    """Keep the weights of modules as they are: they get no gradient, and the optimiser has no moments of them."""
    for module in modules:
        module.requires_grad_(False)
