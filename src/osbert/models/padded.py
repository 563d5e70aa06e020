"""Padded: any model as a module on padded batches (B, T), for custom training loops in torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head


@dataclass(frozen=True, kw_only=True)
class PaddedStates:
    """The output of `Padded` for B rows of T columns.

    `states` (B, T, D): the last layer's state of every token, 0 for padding. `summary` (B, D): the state that
    represents each row, usually that of the first token. `pooled` (B, D): the pooler's output. `scores`: the head's
    output, (B, K) or, for each token, (B, T, K) with 0 for padding; None without a head.

    >>> import torch
    >>> from osbert.models import Padded
    >>> Padded.load("run")(torch.tensor([[2, 5, 9, 3]])).scores.shape
    torch.Size([1, 2])
    """

    states: Tensor
    summary: Tensor
    pooled: Tensor
    scores: Tensor | None = None


class Padded(nn.Module):
    """A backbone, and a head or none, called as `module(input_ids, attention_mask, token_type_ids)`.

    Tokens are concatenated without padding, the flat model is applied, and its states are put back into rows. Outputs
    and gradients are those of the flat model, and padding costs nothing. The weights are shared, not copied.

    >>> import torch
    >>> from osbert.models import Padded
    >>> module = Padded.load("encoder")
    >>> ids = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
    >>> found = module(ids, attention_mask=(ids != 0).long())
    >>> found.states.shape, found.summary.shape
    (torch.Size([2, 4, 16]), torch.Size([2, 16]))
    >>> found.summary.sum().backward()
    """

    def __init__(self, backbone: Backbone, head: Head | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    @classmethod
    def load(cls, model: str | Path) -> Padded:
        """Load a model, with its head if it was fine-tuned, onto the CPU, in evaluation mode.

        `model`: as `osbert.load` takes it. Raises UserError as that does, and for an exported model.
        """
        from osbert import load  # osbert.load is a layer above this package

        engine = load(model)
        head = engine.learner.heads[engine.task.name] if engine.task else None
        return cls(engine.learner.backbone, head).cpu().eval()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> PaddedStates:
        """Return the states of rows of tokens: `input_ids` (B, T), `token_type_ids` (B, T) or 0 everywhere.

        `attention_mask` (B, T): 1 or True for a token, 0 for padding, on either side; None: every column is a token. A
        token's position is the number of tokens before it in its row. Raises ValueError for wrong shapes, for a row
        without tokens, and for a row longer than the model's length.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        if input_ids.ndim != 2 or not input_ids.shape == mask.shape == segments.shape:
            shapes = ", ".join(str(tuple(column.shape)) for column in (input_ids, mask, segments))
            raise ValueError(f"input_ids, attention_mask and token_type_ids must each be (B, T), not {shapes}")
        mask = mask.bool()
        lengths: list[int] = mask.sum(dim=1).tolist()
        sizes = self.backbone.architecture
        if not lengths or not min(lengths):
            raise ValueError("every row needs a token: attention_mask is 0 in a whole row, or there is no row")
        if max(lengths) > sizes.length and not sizes.any_length:
            raise ValueError(f"a row has {max(lengths):,} tokens, but the model reads at most {sizes.length:,}")
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])  # longest first, as attention expects
        rows = torch.tensor(order, device=input_ids.device)
        mask = mask[rows]
        batch = self._batch(input_ids[rows], segments[rows], mask, [lengths[row] for row in order])
        states = self.backbone(batch)
        back = torch.argsort(rows)
        scores = None
        if self.head is not None:
            scores = self.head.every(states, batch)  # (N, K) or (B, K)
            # A head without a form is taken as per-token if its number of scores is not the number of rows.
            if self.head.per_token or len(scores) != len(mask):
                scores = _spread(scores, mask)
        return PaddedStates(
            states=_spread(states.hidden, mask)[back],
            summary=states.summary[back],
            pooled=states.pooled[back],
            scores=None if scores is None else scores[back],
        )

    def _batch(self, ids: Tensor, segments: Tensor, mask: Tensor, lengths: list[int]) -> Batch:
        """Return the tokens of rows, sorted longest first, as a flat batch."""
        counts = torch.tensor(lengths, device=ids.device)  # (B,)
        return Batch(
            ids=ids[mask].long(),
            # The number of tokens before each one in its row, so padding on the left does not shift positions.
            positions=(mask.cumsum(dim=1) - 1)[mask],
            segments=segments[mask].long(),
            order=None,
            lengths=tuple(lengths),
            starts=counts.cumsum(dim=0) - counts,
            records=torch.arange(len(lengths), device=ids.device),
            targets={},
        )


def _spread(rows: Tensor, mask: Tensor) -> Tensor:
    """Return rows (N, D) at the N True places of `mask` (B, T), 0 elsewhere: (B, T, D)."""
    spread = rows.new_zeros(*mask.shape, rows.shape[1])
    spread[mask] = rows
    return spread
