"""Which layers of a frozen encoder are taken for features: Table 7's six choices, ELMo's mix and CoVe's. No torch."""

from __future__ import annotations

from typing import Literal

Features = Literal[
    "none", "last", "second-to-last", "sum-last-four", "concat-last-four", "concat-ends", "sum-all", "embeddings", "mix"
]
"""none: no features, the encoder learns. The sums are weighted, by learnt weights that are shares of 1; so is the mix,
which has the embeddings among its layers, and a learnt factor (ELMo's). concat-ends: the embeddings and the last layer
side by side, as in CoVe (McCann et al. 2017, section 4)."""


def feature_layers(features: Features, layers: int) -> range:
    """Return the numbers of the layers taken, for an encoder of so many; 0 is the embedding output."""
    top = layers + 1
    return {
        "none": range(0),
        "last": range(layers, top),
        "second-to-last": range(layers - 1, layers),
        "sum-last-four": range(max(1, layers - 3), top),
        "concat-last-four": range(max(1, layers - 3), top),
        "concat-ends": range(0, top, max(1, layers)),
        "sum-all": range(1, top),
        "embeddings": range(1),
        "mix": range(top),
    }[features]
