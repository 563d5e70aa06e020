"""What stands on a backbone: the Head contract, the Loss a head returns, the Learner that joins backbone and heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.families.transformer import States, Transformer

if TYPE_CHECKING:
    from osbert.models.adapting.features import Frozen


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A summed loss and the count it is a mean over, so that uneven micro-batches add up exactly.

    `total` (): the sum. `count`: how many labels (or the sum of their weights). `hits` (): how many were predicted
    rightly, or None where right and wrong make no sense.
    """

    total: Tensor
    count: float
    hits: Tensor | None = None


class Head(nn.Module):
    """States -> outputs -> Loss.

    `kind` names the head's published form ("mlm", "nsp", "classify", "regress") for interop.
    """

    kind: str = ""
    sparse: bool = False
    """Whether the loss reads no states but those of the labelled tokens and the summaries; training is then faster."""
    frozen: Frozen | None = None
    """What gives it states of a frozen encoder, in place of the backbone's; it is then the learner's only head."""

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores that decoding reads."""
        raise NotImplementedError

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed loss over this objective's targets in the batch."""
        raise NotImplementedError


class Learner(nn.Module):
    """A backbone and its heads by objective name: one pass over the tokens, one loss an objective."""

    def __init__(self, backbone: Transformer, heads: Mapping[str, Head]) -> None:
        """Join a backbone with heads."""
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleDict(heads)

    def states(self, batch: Batch, read: Tensor | None = None) -> States:
        """Return the states that the heads read; `read` as in `Transformer.forward`."""
        for head in self.heads.values():
            if head.frozen is not None:
                return head.frozen(batch)  # type: ignore[operator]
        return self.backbone(batch, read)

    def forward(self, batch: Batch) -> dict[str, Loss]:
        """Return each objective's loss; an objective without targets in this batch is left out."""
        sparse = all(head.sparse for head in self.heads.values())
        states = self.states(batch, self.backbone.readable(batch) if sparse else None)
        return {name: head(states, batch) for name, head in self.heads.items() if name in batch.targets}
