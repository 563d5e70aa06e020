"""Cross-entropy over a vocabulary, fused with the product that makes the scores.

Plainly, the scores (M, V) of a batch are made, kept, copied as log-probabilities, and copied again as gradients: more
memory than all the rest of a small model. Here they are made a few rows at a time in one buffer, which turns into
probabilities and then into the gradient in place, and is spent on the gradients of states, weight and bias at once.
The value is that of `torch.nn.functional.cross_entropy(linear(states, weight, bias), labels, reduction="sum")`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from osbert.models.fast.linear import ROWS, compiled, linear, precision_of, rounded
from osbert.models.fast.threads import threads_for

SCORES = {"cpu": 2**23}
"""Most scores in the buffer by kind of device: on a CPU about as many as stay in its cache."""
SCORES_ELSEWHERE = 2**28
ALIGNED = 16
"""Rows in the buffer are a multiple of this, which products are faster with."""
PIECES = 2**10
"""Pieces of the vocabulary in one product: CPUs take the whole vocabulary's at three quarters of that speed."""


def linear_cross_entropy(
    states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the (weighted) sum () of the cross-entropy in nats, in float32, and how many () labels score highest.

    `states` (M, D), `weight` (V, D), `bias` (V,), `labels` (M,), `weights` (M,) or None for 1 each. Under autocast the
    products are made in its precision, all else in the precision of `bias`. Its gradient can be taken once.
    """
    kind = states.device.type
    precision = precision_of(weight)
    with torch.autocast(kind, enabled=False), threads_for(len(states) * weight.numel()):
        found: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(
            states, weight, bias, labels, weights, precision, torch.is_grad_enabled()
        )
    return found


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        states, weight, bias, labels, weights, precision, learning = given
        learning = learning and any(ctx.needs_input_grad[:3])  # which do not know of no_grad
        most = max(1, SCORES.get(states.device.type, SCORES_ELSEWHERE) // len(bias))
        parts = -(-len(labels) // most)
        rows = -(-len(labels) // max(1, parts))  # parts of nearly equal size
        aligned = ROWS if compiled(states.device.type, precision) else ALIGNED
        rows = min(-(-rows // aligned) * aligned, len(labels))
        sums = _Sums(states, weight, bias, precision=precision, learning=learning, rows=rows)
        for start in range(0, len(labels), rows or 1):
            here = slice(start, start + rows)
            sums.add(here, labels[here], None if weights is None else weights[here, None].to(bias.dtype))
        ctx.gradients = sums.gradients
        ctx.mark_non_differentiable(sums.hits)
        return sums.total, sums.hits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *towards: Any) -> Any:
        scale, gradients = towards[0], ctx.gradients
        ctx.gradients = None  # they are handed on, so there is no second time
        if gradients is None:
            raise RuntimeError("the gradient of linear_cross_entropy can be taken once only")
        return *(gradient.mul_(scale) for gradient in gradients), None, None, None, None


class _Sums:
    """The loss, the hits and the three gradients, added up over the rows."""

    def __init__(
        self, states: Tensor, weight: Tensor, bias: Tensor, *, precision: torch.dtype, learning: bool, rows: int
    ) -> None:
        self.states, self.weight, self.bias = states.to(precision), weight.to(precision), bias
        self.buffer = bias.new_empty(rows, len(bias))
        self.total = bias.new_zeros(())
        self.hits = torch.zeros((), dtype=torch.int64, device=bias.device)
        zeros = torch.zeros_like
        self.gradients = (zeros(states), zeros(weight), zeros(bias)) if learning else None

    def add(self, here: slice, labels: Tensor, weights: Tensor | None) -> None:
        """Add the rows `here`, `weights` (rows, 1)."""
        scores = self._scores(self.states[here])  # (rows, V)
        chosen = scores.gather(1, labels[:, None])  # (rows, 1)
        self.hits += hits(scores, chosen, labels)
        largest = scores.amax(dim=1, keepdim=True)
        probabilities = torch.softmax(scores, dim=1, out=scores)
        # The largest probability is 1 / sum(exp(score - largest)): never 0, where the label's own may be.
        losses = largest - chosen - probabilities.amax(dim=1, keepdim=True).log()
        self.total += (losses if weights is None else losses * weights).sum()
        if self.gradients is not None:
            self._differentiate(self.gradients, here, probabilities, labels=labels, weights=weights)

    def _scores(self, states: Tensor) -> Tensor:
        scores = self.buffer[: len(states)]
        if states.dtype == scores.dtype:
            pieces = PIECES if scores.device.type == "cpu" else len(self.bias)
            for start in range(0, len(self.bias), pieces):
                some = slice(start, start + pieces)
                torch.addmm(self.bias[some], states, self.weight[some].t(), out=scores[:, some])
            return scores
        return torch.add(linear(states, self.weight), self.bias, out=scores)

    def _differentiate(
        self,
        gradients: tuple[Tensor, Tensor, Tensor],
        here: slice,
        probabilities: Tensor,
        *,
        labels: Tensor,
        weights: Tensor | None,
    ) -> None:
        slopes = probabilities  # of the loss by the scores: probability - 1 at the label, in the same memory
        slopes.scatter_add_(1, labels[:, None], slopes.new_full((len(labels), 1), -1.0))
        if weights is not None:
            slopes.mul_(weights)
        of_states, of_weight, of_bias = gradients
        of_bias += slopes.sum(dim=0)
        slopes, states = rounded(slopes.to(self.states.dtype)), rounded(self.states[here])
        of_states[here] = (slopes @ self.weight)[: len(labels)]
        if slopes.dtype == of_weight.dtype:
            of_weight.addmm_(slopes.t(), states)
        else:
            of_weight += slopes.t() @ states


def hits(scores: Tensor, chosen: Tensor, labels: Tensor) -> Tensor:
    """Return how many () of `labels` (M,) have the highest of `scores` (M, V); `chosen` (M, 1) are the labels' own.

    The CPU finds a row's highest score ten times faster than its place, so it looks for the place only where it
    matters: in the rows where the label's score is the highest, of which there may be several.
    """
    if scores.device.type == "cpu":
        (rows,) = torch.nonzero((chosen >= scores.amax(dim=1, keepdim=True)).squeeze(1), as_tuple=True)
        scores, labels = scores[rows], labels[rows]
    return (scores.argmax(dim=1) == labels).sum()
