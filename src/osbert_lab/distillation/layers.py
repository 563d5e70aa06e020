"""Encoders of fewer layers, which are evenly chosen from another encoder."""

from __future__ import annotations

import numpy as np

from osbert.models.contract import Backbone
from osbert.models.families.transformer import Transformer


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
