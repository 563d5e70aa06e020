"""Layers that an encoder gains or loses: adapters and recurrent layers for a task, fewer layers for distillation."""

from __future__ import annotations

import dataclasses

import numpy as np

from osbert.models.contract import Backbone, Sizes
from osbert.models.families.transformer import Transformer
from osbert.models.transformer.added_layers import Adapter, Recurrent


def adjust_sizes(sizes: Sizes, *, dropout: float, recurrent: int = 0, adapters: int = 0) -> Sizes:
    """Return the settings of an encoder for fine-tuning, with new dropout rates and the added layers that are not 0.

    Raises ValueError if its family has no such layers.
    """
    known = {field.name for field in dataclasses.fields(sizes)}  # type: ignore[arg-type]
    layers = {name: value for name, value in (("recurrent", recurrent), ("adapters", adapters)) if value}
    if missing := [f"{name} is {value}" for name, value in layers.items() if name not in known]:
        raise ValueError(f"{' and '.join(missing)}, but the family {sizes.family} has no such layers")
    return sizes.replace(**{name: dropout for name in ("dropout", "attention_dropout") if name in known}, **layers)


def add_recurrent(backbone: Backbone, sizes: Sizes) -> str:
    """Add new recurrent layers on top if `sizes` differs from the encoder in them; return a remark, or ""."""
    current_layers, wanted = (settings.recurrent for settings in (backbone.architecture, sizes))
    if current_layers == wanted or not isinstance(backbone, Transformer):
        return ""
    backbone.recurrent = Recurrent(sizes.width, wanted, dropout=sizes.dropout)
    return f"the bidirectional LSTM on top is newly initialised (recurrent = {wanted})"


def add_adapters(backbone: Backbone, sizes: Sizes) -> str:
    """Add new adapters to all blocks if `sizes` differs from the encoder in them; return a remark, or ""."""
    current_width, wanted = (settings.adapters for settings in (backbone.architecture, sizes))
    if current_width == wanted or not isinstance(backbone, Transformer):
        return ""
    for block in backbone.blocks:
        block.attention_adapter, block.feedforward_adapter = (Adapter(sizes.width, wanted) for _ in range(2))
    return f"adapters of width {wanted} in its blocks are newly initialised"


def even_layers(layers: int, count: int, *, period: int = 1) -> tuple[int, ...]:
    """Return `count` of the layers 0 to `layers` - 1, evenly spaced, with the first and (for two or more) the last.

    With a `period`, layer i of the result is congruent to i: if every third layer is global, global layers come from
    global ones. The last layer may then be left out.

    >>> even_layers(12, 6), even_layers(6, 3), even_layers(6, 1), even_layers(10, 5, period=3)
    ((0, 2, 4, 7, 9, 11), (0, 2, 5), (0,), (0, 1, 5, 6, 7))
    """
    # Then each is moved to a layer of the same kind, at most as far as the last one allows.
    even = [round(position) for position in np.linspace(0, layers - 1, count).tolist()]
    most = (layers - count) // period
    return tuple(
        layer_index + period * min(round((layer - layer_index) / period), most)
        for layer_index, layer in enumerate(even)
    )


def select_layers(backbone: Backbone, count: int) -> tuple[int, ...]:
    """Return the layers that `fewer_layers` copies: local layers stay local, and global ones global."""
    period = backbone.architecture.global_every if isinstance(backbone, Transformer) else 1
    return even_layers(backbone.architecture.layers, count, period=period)


def fewer_layers(backbone: Backbone, count: int) -> Backbone:
    """Return an encoder with `count` evenly chosen layers of `backbone`, otherwise equal, with copied weights.

    Raises ValueError if `count` is not below its number of layers, or its family does not support this.
    """
    sizes = backbone.architecture
    if not isinstance(backbone, Transformer):
        raise ValueError(f"layers of the family {sizes.family} cannot be chosen")
    if sizes.layers == 1:
        raise ValueError("it has one layer alone, of which none can be left out")
    if not 0 < count < sizes.layers:
        raise ValueError(f"of {sizes.layers} layers 1 to {sizes.layers - 1} can be chosen, not {count}")
    shared = backbone.architecture.distinct == 1  # one block for all layers stays one
    chosen = backbone.architecture.replace(layers=count, distinct=int(shared))
    weights = {name: weight.clone() for name, weight in backbone.state_dict().items() if not name.startswith("blocks.")}
    layers = select_layers(backbone, count)
    for index, layer in enumerate(layers[: chosen.blocks]):
        block = backbone.depth[layer].state_dict()
        weights |= {f"blocks.{index}.{name}": weight.clone() for name, weight in block.items()}
    smaller: Backbone = chosen.empty()
    smaller.load_state_dict(weights, assign=True)
    return smaller
