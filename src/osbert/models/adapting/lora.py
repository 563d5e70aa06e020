"""LoRA (Hu et al. 2021): the query and value matrices learn a change of low rank; the encoder itself stays as it is.

W becomes W + 2 U V with U (D, r) and V (r, D). U starts at 0, so that the first step is the encoder's own. When
training has ended the change is added to W, and there is nothing left to compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from osbert.models.contract import Backbone
from osbert.models.fast.linear import Linear
from osbert.models.fast.linear import linear as product
from osbert.models.transformer.attention import Attention

SCALE = 2.0
"""What the change is multiplied by: LoRA's alpha / r."""
CHANGED = ("query", "value")
"""The matrices that learn (Hu et al., section 4.2)."""


@dataclass(frozen=True, kw_only=True)
class Factors:
    """A change of low rank: `up` (rows, r) times `down` (r, D)."""

    up: Tensor
    down: Tensor

    def added(self, weight: Tensor) -> Tensor:
        """Return the weight (rows, D) with the change."""
        return weight + self.up @ self.down


class LowRank(nn.Module):
    """Stands in for a linear layer of `Attention`, as one from D to 3 D whose queries and values have a change."""

    def __init__(self, linear: Linear, rank: int, matrices: Sequence[str]) -> None:
        """Change `linear`, which itself does not learn from now on; `matrices` lie on each other in it."""
        super().__init__()
        width, rows = linear.in_features, linear.out_features // len(matrices)
        self.linear = linear.requires_grad_(False)
        self.places = {name: place for place, name in enumerate(matrices)}
        here = [name for name in CHANGED if name in matrices]
        self.downs = nn.ParameterDict({name: torch.randn(rank, width) / width**0.5 for name in here})
        self.ups = nn.ParameterDict({name: torch.zeros(rows, rank) for name in here})

    @property
    def weight(self) -> Tensor:
        """Return the changed matrices (3 D, D), for who wants a part of the product."""
        parts = list(self.linear.weight.chunk(len(self.places)))
        for name, factors in self.factors().items():
            parts[self.places[name]] = factors.added(parts[self.places[name]])
        return torch.cat(parts)

    @property
    def bias(self) -> Tensor | None:
        """Return the biases (3 D,), which have no change."""
        return self.linear.bias

    def forward(self, hidden: Tensor) -> Tensor:
        """Return queries, keys and values side by side, (N, 3 D), for `hidden` (N, D)."""
        parts = list(self.linear(hidden).chunk(len(self.places), dim=-1))
        for name, factors in self.factors().items():
            low = product(hidden, factors.down)  # (N, r)
            place = self.places[name]
            parts[place] = parts[place] + product(low, factors.up)
        return torch.cat(parts, dim=-1)

    def factors(self) -> dict[str, Factors]:
        """Return the change of each matrix that has one."""
        return {name: Factors(up=SCALE * self.ups[name], down=self.downs[name]) for name in self.ups}


def add_low_rank(backbone: Backbone, rank: int) -> list[nn.Module]:
    """Put changes of a rank into every block, with random numbers from torch's global generator; return what learns."""
    added: list[nn.Module] = []
    for _, attention in _attentions(backbone):
        for name, matrices in attention.matrices.items():
            linear = getattr(attention, name)
            assert isinstance(linear, Linear)
            changed = LowRank(linear, rank, matrices)
            setattr(attention, name, changed)
            added += [changed.downs, changed.ups]
    return added


@torch.no_grad()
def merge(backbone: Backbone) -> dict[str, dict[str, Factors]]:
    """Add the changes to the matrices and take them out of the backbone.

    Returns what they were: by the name of the attention's module, and by that of the matrix.
    """
    taken = {}
    for module, attention in _attentions(backbone):
        found: dict[str, Factors] = {}
        for layer in attention.matrices:
            changed = getattr(attention, layer)
            assert isinstance(changed, LowRank)
            factors = changed.factors()
            found |= {name: Factors(up=one.up.detach(), down=one.down.detach()) for name, one in factors.items()}
            changed.linear.weight.copy_(changed.weight)
            setattr(attention, layer, changed.linear.requires_grad_(True))
        taken[module] = found
    return taken


def _attentions(backbone: Backbone) -> Iterator[tuple[str, Attention]]:
    """Yield every attention by the name of its module: of a decoder too. One that layers share comes once."""
    # All at once: modules are put in and taken out on the way.
    yield from [(name, module) for name, module in backbone.named_modules() if isinstance(module, Attention)]
