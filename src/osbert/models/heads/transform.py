"""The transform of states before heads of tokens and spans score them: none, or dense layer, activation and norm."""

from __future__ import annotations

from torch import Tensor, nn

from osbert.models.contract import Sizes
from osbert.models.fast.linear import Linear
from osbert.models.initialisation import initialise
from osbert.models.transformer.block import ACTIVATIONS, norm_of


class Transform(nn.Module):
    """(N, D) -> (N, D): norm(activation(dense)), the prediction head of ModernBERT (Warner et al. 2024)."""

    def __init__(self, sizes: Sizes) -> None:
        """Make the layers, with newly initialised weights."""
        super().__init__()
        self.dense = Linear(sizes.width, sizes.width, bias=sizes.head_biases)
        self.activation = ACTIVATIONS[sizes.activation]
        self.norm = norm_of(sizes, sizes.width, biases=sizes.head_biases)
        initialise(self, sizes.deviation)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the transformed states (N, D)."""
        return self.norm(self.activation(self.dense(hidden)))


def transform(sizes: Sizes) -> nn.Module:
    """Return the transform below a head's scores; the identity if `head_transform` is off."""
    return Transform(sizes) if sizes.head_transform else nn.Identity()
