"""A smaller encoder of some layers of a larger one, where a distillation begins (Sanh et al. 2019, section 3)."""

from __future__ import annotations

import numpy as np

from osbert.models.contract import Backbone
from osbert.models.families.transformer import Transformer


def even_layers(layers: int, count: int) -> tuple[int, ...]:
    """Return `count` of the layers 0 to `layers` - 1, evenly spaced: the first and the last are among them.

    >>> even_layers(12, 6), even_layers(6, 3), even_layers(6, 1)
    ((0, 2, 4, 7, 9, 11), (0, 2, 5), (0,))
    """
    return tuple(round(place) for place in np.linspace(0, layers - 1, count).tolist())


def fewer_layers(backbone: Backbone, count: int) -> Backbone:
    """Return an encoder of `count` layers of another, evenly chosen; all else is the same, the weights are copies.

    Raises ValueError if it has not more layers than that, and if its family has no layers that could be chosen.
    """
    sizes = backbone.architecture
    if not isinstance(backbone, Transformer):
        raise ValueError(f"layers of the family {sizes.family} cannot be chosen")
    if not 0 < count < sizes.layers:
        raise ValueError(f"of {sizes.layers} layers 1 to {sizes.layers - 1} can be chosen, not {count}")
    shared = backbone.architecture.distinct == 1  # one block for all layers stays one
    chosen = backbone.architecture.changed(layers=count, distinct=int(shared))
    weights = {name: weight.clone() for name, weight in backbone.state_dict().items() if not name.startswith("blocks.")}
    layers = even_layers(sizes.layers, count)
    for place, layer in enumerate(layers[: chosen.blocks]):
        block = backbone.depth[layer].state_dict()
        weights |= {f"blocks.{place}.{name}": weight.clone() for name, weight in block.items()}
    smaller: Backbone = chosen.empty()
    smaller.load_state_dict(weights, assign=True)
    return smaller
