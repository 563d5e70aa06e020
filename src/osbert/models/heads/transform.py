"""What heads of tokens and spans do to a state before they score it: nothing, or a dense layer, activation and norm."""

from __future__ import annotations

from torch import Tensor, nn

from osbert.models.contract import Sizes
from osbert.models.fast.linear import Linear
from osbert.models.initialisation import initialise
from osbert.models.transformer.block import ACTIVATIONS, norm_of


class Transform(nn.Module):
    """(N, D) -> (N, D): norm(activation(dense)), the prediction head of ModernBERT (Warner et al. 2024)."""

    def __init__(self, sizes: Sizes) -> None:
        """Draw its weights afresh."""
        super().__init__()
        self.dense = Linear(sizes.width, sizes.width, bias=sizes.head_biases)
        self.activation = ACTIVATIONS[sizes.activation]
        self.norm = norm_of(sizes, sizes.width, biases=sizes.head_biases)
        initialise(self, sizes.deviation)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the states (N, D) that are scored."""
        return self.norm(self.activation(self.dense(hidden)))


def transform(sizes: Sizes) -> nn.Module:
    """Return the transform that a head stands on, which may be none."""
    return Transform(sizes) if sizes.head_transform else nn.Identity()
