"""Padded: any of our models as a module on padded rectangles of tokens, for one's own training loop in torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head


@dataclass(frozen=True, kw_only=True)
class PaddedStates:
    """What `Padded` returns of B rows of T columns.

    `states` (B, T, D): the last layer's state of every token, 0 where there is padding. `summary` (B, D): the state of
    the one token that stands for its row, as a rule the first. `pooled` (B, D): the summary behind the pooler.
    `scores`: what the head gives, (B, K), or (B, T, K) for each token, with 0 where there is padding; None without one.

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

    The tokens are laid end to end without padding, the flat model computes, and the rows are put back: so the numbers
    are the flat model's own, gradients included, and padding costs nothing. The weights are the model's own too, not
    copies.

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
        """Wrap a backbone of any family, and one of its heads."""
        super().__init__()
        self.backbone = backbone
        self.head = head

    @classmethod
    def load(cls, model: str | Path) -> Padded:
        """Load a model, with its head if it was fine-tuned, onto the CPU, in evaluation mode.

        `model`: as `osbert.load` takes it. Raises UserError as that does, and for an exported model.
        """
        from osbert import load  # what opens a folder stands above this room

        engine = load(model)
        head = engine.learner.heads[engine.task.name] if engine.task else None
        return cls(engine.learner.backbone, head).cpu().eval()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> PaddedStates:
        """Return the states of rows of tokens: `input_ids` (B, T), `token_type_ids` (B, T) or 0 everywhere.

        `attention_mask` (B, T): 1 or True for a token, 0 for padding, on either side; every column is a token without
        it. A token's position is the number of tokens before it in its row. Raises ValueError at other shapes, at a row
        without a token, and at one that is longer than the model.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        if input_ids.ndim != 2 or not input_ids.shape == mask.shape == segments.shape:
            shapes = ", ".join(str(tuple(column.shape)) for column in (input_ids, mask, segments))
            raise ValueError(f"input_ids, attention_mask and token_type_ids must each be (B, T), not {shapes}")
        mask = mask.bool()
        lengths = self._lengths(mask)
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])  # as the attention kernel likes them
        rows = torch.tensor(order, device=input_ids.device)
        mask = mask[rows]
        batch = self._batch(input_ids[rows], segments[rows], mask, [lengths[row] for row in order])
        states = self.backbone(batch)
        back = torch.argsort(rows)
        scores = None if self.head is None else _scores(self.head, self.head.every(states, batch), mask)
        return PaddedStates(
            states=_spread(states.hidden, mask)[back],
            summary=states.summary[back],
            pooled=states.pooled[back],
            scores=None if scores is None else scores[back],
        )

    def _lengths(self, mask: Tensor) -> list[int]:
        lengths: list[int] = mask.sum(dim=1).tolist()
        sizes = self.backbone.architecture
        if not lengths or not min(lengths):
            raise ValueError("every row needs a token: attention_mask is 0 in a whole row, or there is no row")
        if max(lengths) > sizes.length and not sizes.any_length:
            raise ValueError(f"a row has {max(lengths):,} tokens, but the model reads at most {sizes.length:,}")
        return lengths

    def _batch(self, ids: Tensor, segments: Tensor, mask: Tensor, lengths: list[int]) -> Batch:
        """Return the tokens of rows, the longest first, as a flat batch."""
        counts = torch.tensor(lengths, device=ids.device)  # (B,)
        return Batch(
            ids=ids[mask].long(),
            positions=(mask.cumsum(dim=1) - 1)[mask],
            segments=segments[mask].long(),
            order=None,
            lengths=tuple(lengths),
            starts=counts.cumsum(dim=0) - counts,
            records=torch.arange(len(lengths), device=ids.device),
            targets={},
        )


def _scores(head: Head, scores: Tensor, mask: Tensor) -> Tensor:
    """Return a head's scores (N, K) as (B, T, K), and those of whole sequences as they are.

    A head without a form may be one of tokens: its number of scores says so, unless every row has one token.
    """
    return _spread(scores, mask) if head.per_token or len(scores) != len(mask) else scores


def _spread(rows: Tensor, mask: Tensor) -> Tensor:
    """Return rows (N, D) at the N True places of `mask` (B, T), 0 elsewhere: (B, T, D)."""
    spread = rows.new_zeros(*mask.shape, rows.shape[1])
    spread[mask] = rows
    return spread
