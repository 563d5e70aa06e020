"""Adapters (Houlsby et al. 2019): two small layers in each block learn a task; the encoder around them stays as it is.

Each sits behind a sublayer, before its output is added to the input: x + W_up f(W_down x), from the width to a
bottleneck and back. W_up starts at 0, so that the encoder with new adapters is the encoder without. As in the paper,
the norms of the blocks learn as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor, nn

from osbert.models.fast.linear import Linear

if TYPE_CHECKING:
    from osbert.models.architecture import Architecture
    from osbert.models.contract import Backbone


class Adapter(nn.Module):
    """(N, D) -> (N, D): a bottleneck and a way around it."""

    def __init__(self, width: int, bottleneck: int) -> None:
        """Make a bottleneck for states of a width, with torch's own first weights and nothing to say yet."""
        super().__init__()
        self.down = Linear(width, bottleneck)
        self.activation = nn.GELU()
        self.up = Linear(bottleneck, width)
        self.silence()

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the states (N, D) with what the adapter adds."""
        return hidden + self.up(self.activation(self.down(hidden)))

    def silence(self) -> None:
        """Let the adapter add nothing."""
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)


def adapter(architecture: Architecture) -> nn.Module:
    """Return a fresh adapter, or what does nothing where the architecture has none."""
    return Adapter(architecture.width, architecture.adapters) if architecture.adapters else nn.Identity()


def adapted(backbone: Backbone) -> Iterator[nn.Module]:
    """Yield what learns in an encoder with adapters: these, and the norms of the blocks and after the last one."""
    below = set(backbone.stack[0].modules())
    for module in backbone.modules():
        if isinstance(module, Adapter | nn.LayerNorm | nn.RMSNorm) and module not in below:
            yield module
