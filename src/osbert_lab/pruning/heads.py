"""A Transformer with fewer attention heads: the weights of those that stay, in smaller matrices.

All blocks have the same number of heads (`Architecture.heads`), of the width that they had (`head_width`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from osbert.models.contract import Backbone
from osbert.models.families.transformer import Transformer
from osbert_lab.analysis.figures import Floats

COLUMNS = ("outward.weight", "relative.segments")
"""Weights of attention whose second axis is that of the heads; the first is in all others."""
WITHOUT = ("outward.bias",)
"""Weights of attention without an axis for heads."""


def obstacle(backbone: Backbone) -> str:
    """Return why heads of an encoder cannot be removed; "" if they can."""
    sizes = backbone.architecture
    if not isinstance(backbone, Transformer):
        return f"heads of the family {sizes.family} cannot be removed"
    if backbone.architecture.key_heads:
        return "its heads share keys and values (key_heads)"
    if backbone.architecture.distance_scores:
        return "its layers share a bias for each head (distance_scores), but would lose other heads"
    return ""


def choose_heads(backbone: Transformer, importance: Floats, removed: int) -> list[list[int]]:
    """Return the heads that stay in each block if it loses its `removed` least important ones, in ascending order.

    `importance` (L, H) is that of each layer's heads; layers that share a block (ALBERT) share their mean.
    """
    retained = []
    for block in backbone.blocks:
        rows = importance[[layer is block for layer in backbone.depth]].mean(axis=0)  # (H,)
        retained.append(sorted(np.argsort(rows, kind="stable")[removed:].tolist()))
    return retained


def keep_heads(backbone: Transformer, retained: Sequence[Sequence[int]]) -> Backbone:
    """Return an encoder with the heads `retained` of each block, as many in all, and copies of all other weights.

    It computes what `backbone` computes where the outputs of the other heads are 0. Raises ValueError if there is no
    such architecture.
    """
    sizes = backbone.architecture
    smaller = sizes.replace(heads=len(retained[0]), head_width=sizes.key_width)

    def select(tensor: Tensor, heads: Sequence[int], axis: int) -> Tensor:
        # (..., n H K, ...) -> (..., n, H, K, ...): a matrix may stack queries, keys and values.
        by_head = tensor.unflatten(axis, (-1, sizes.heads, sizes.key_width))
        return by_head.index_select(axis + 1, torch.tensor(heads)).flatten(axis, axis + 2)

    weights = {}
    for name, tensor in backbone.state_dict().items():
        _, inside, part = name.partition(".attention.")
        if inside and part not in WITHOUT:
            tensor = select(tensor, retained[int(name.split(".")[1])], axis=int(part in COLUMNS))
        weights[name] = tensor.clone()
    pruned: Backbone = smaller.empty()
    pruned.load_state_dict(weights, assign=True)
    return pruned
