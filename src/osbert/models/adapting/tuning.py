"""What a fine-tuning trains: all of an encoder, its upper layers, only its adapters, or LoRA's low-rank changes.

LoRA (Hu et al. 2021): W becomes W + 2 U V with U (D, r) and V (r, D), and the encoder itself is frozen. U starts at 0,
so training starts from the unchanged encoder. Afterwards the change is added to W, so inference costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from osbert.models.contract import Backbone
from osbert.models.fast.linear import Linear
from osbert.models.fast.linear import linear as product
from osbert.models.transformer.added_layers import Adapter
from osbert.models.transformer.attention import Attention


def freeze_lowest(backbone: Backbone, layers: int) -> None:
    """Freeze the embeddings and the lowest `layers` blocks; do nothing if `layers` is 0.

    Raises ValueError if there are fewer blocks, or if a layer above shares a block with one of them.
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


def trainable_modules(backbone: Backbone) -> Iterator[nn.Module]:
    """Yield the trained modules of an encoder with adapters: adapters and norms, but not the norm of embeddings."""
    below = set(backbone.stack[0].modules())
    for module in backbone.modules():
        if isinstance(module, Adapter | nn.LayerNorm | nn.RMSNorm) and module not in below:
            yield module


def learn_only(backbone: Backbone, modules: Iterable[nn.Module]) -> None:
    """Freeze the encoder except `modules`, the pooler, and recurrent layers on top."""
    freeze([backbone])
    for module in (*modules, *backbone.above):
        module.requires_grad_(True)


def freeze(modules: Iterable[nn.Module]) -> None:
    """Freeze the weights of modules: they get no gradient, and the optimiser keeps no moments for them."""
    for module in modules:
        module.requires_grad_(False)


SCALE = 2.0
"""Factor of the change: LoRA's alpha / r."""
CHANGED = ("query", "value")
"""The matrices with a trained change (Hu et al., section 4.2)."""


@dataclass(frozen=True, kw_only=True)
class Factors:
    """A low-rank change: `up` (rows, r) times `down` (r, D)."""

    up: Tensor
    down: Tensor

    def add_to(self, weight: Tensor) -> Tensor:
        """Return `weight` (rows, D) plus the change."""
        return weight + self.up @ self.down


class LowRank(nn.Module):
    """Replaces a linear layer of `Attention`, such as D to 3 D, and adds changes to its queries and values."""

    def __init__(self, linear: Linear, rank: int, matrices: Sequence[str]) -> None:
        """Wrap `linear` and freeze it; `matrices`: the names of the matrices stacked in its weight."""
        super().__init__()
        width, rows = linear.in_features, linear.out_features // len(matrices)
        self.linear = linear.requires_grad_(False)
        self.indices = {name: index for index, name in enumerate(matrices)}
        here = [name for name in CHANGED if name in matrices]
        self.downs = nn.ParameterDict({name: torch.randn(rank, width) / width**0.5 for name in here})
        self.ups = nn.ParameterDict({name: torch.zeros(rows, rank) for name in here})

    @property
    def weight(self) -> Tensor:
        """The changed matrices (3 D, D), for products with a part of them."""
        parts = list(self.linear.weight.chunk(len(self.indices)))
        for name, factors in self.factors().items():
            parts[self.indices[name]] = factors.add_to(parts[self.indices[name]])
        return torch.cat(parts)

    @property
    def bias(self) -> Tensor | None:
        """The biases (3 D,), which are not changed."""
        return self.linear.bias

    def forward(self, hidden: Tensor) -> Tensor:
        """Return queries, keys and values side by side, (N, 3 D), for `hidden` (N, D)."""
        parts = list(self.linear(hidden).chunk(len(self.indices), dim=-1))
        for name, factors in self.factors().items():
            # Two thin products, (N, D) to (N, r) to (N, rows), instead of forming the matrix of the change.
            low = product(hidden, factors.down)  # (N, r)
            index = self.indices[name]
            parts[index] = parts[index] + product(low, factors.up)
        return torch.cat(parts, dim=-1)

    def factors(self) -> dict[str, Factors]:
        """Return the change of each changed matrix, with SCALE multiplied in."""
        return {name: Factors(up=SCALE * self.ups[name], down=self.downs[name]) for name in self.ups}


def add_low_rank(backbone: Backbone, rank: int) -> list[nn.Module]:
    """Add changes of rank `rank` to every attention, with torch's global generator; return the trained modules."""
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
    """Add the changes to the matrices and restore the plain layers.

    Returns the changes, by the name of the attention's module and the name of the matrix.
    """
    taken = {}
    for module, attention in _attentions(backbone):
        module_changes: dict[str, Factors] = {}
        for layer in attention.matrices:
            changed = getattr(attention, layer)
            assert isinstance(changed, LowRank)
            factors = changed.factors()
            module_changes |= {
                name: Factors(up=change.up.detach(), down=change.down.detach()) for name, change in factors.items()
            }
            changed.linear.weight.copy_(changed.weight)
            setattr(attention, layer, changed.linear.requires_grad_(True))
        taken[module] = module_changes
    return taken


def _attentions(backbone: Backbone) -> Iterator[tuple[str, Attention]]:
    """Yield the name and module of every attention, also of a decoder; shared ones once."""
    # A list, not a generator: the caller replaces modules during the iteration.
    yield from [(name, module) for name, module in backbone.named_modules() if isinstance(module, Attention)]
