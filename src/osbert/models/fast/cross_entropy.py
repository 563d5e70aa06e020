"""Cross-entropy over a vocabulary, fused with the product that computes the scores.

The plain version keeps the scores (M, V) of a batch, their log-probabilities and their gradients: more memory than all
the rest of a small model. Here a buffer holds the scores of a few rows, which become probabilities and then gradients
in place, and are immediately multiplied into the gradients of states, weight and bias.
The value is that of `torch.nn.functional.cross_entropy(linear(states, weight, bias), labels, reduction="sum")`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from osbert.models.fast.linear import ROWS, convert_rows, is_compiled, linear, precision_of
from osbert.models.fast.threads import threads_for

SCORES = {"cpu": 2**24}
"""Most scores in the buffer by type of device. On a CPU in bf16 each buffer costs a pass over the weight's gradient."""
SCORES_ELSEWHERE = 2**28
ALIGNED = 16
"""The buffer's rows are a multiple of this, for faster products."""
WIDTHS = {"cuda": 64}
"""By type of device, the multiple to which the vocabulary is padded in products: a GPU's are much slower for 30,522."""
PIECES = 2**10
"""Pieces of the vocabulary in one product. On CPUs one product for the whole vocabulary has 3/4 of the speed."""
CHUNK_ROWS = 256
"""Rows of one product over all pieces in bf16 on CPUs: with AMX, oneDNN computes some larger ones in one thread."""


def linear_cross_entropy(
    states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the (weighted) sum () of the cross-entropy in nats, in float32, and the number () of hits.

    `states` (M, D), `weight` (V, D), `bias` (V,), `labels` (M,), `weights` (M,) or None for 1 each. Under autocast the
    products have its precision, everything else the precision of `bias`. The gradient can be computed once only.
    """
    kind = states.device.type
    precision = precision_of(weight)
    with torch.autocast(kind, enabled=False), threads_for(len(states) * weight.numel()):
        loss_and_hits: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(
            states, weight, bias, labels, weights, precision, torch.is_grad_enabled()
        )
    return loss_and_hits


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        # The gradients are computed here already: backward then only scales them, and keeps no scores.
        states, weight, bias, labels, weights, precision, learning = given
        learning = learning and any(ctx.needs_input_grad[:3])  # needs_input_grad is True also under no_grad
        # Rows whose scores (rows, V) fit into the buffer.
        most = max(1, SCORES.get(states.device.type, SCORES_ELSEWHERE) // len(bias))
        parts = -(-len(labels) // most)
        rows = -(-len(labels) // max(1, parts))  # parts of nearly equal size
        aligned = ROWS if is_compiled(states.device.type, precision) else ALIGNED
        rows = min(-(-rows // aligned) * aligned, len(labels))
        sums = _Sums(states, weight, bias, precision=precision, learning=learning, rows=rows)
        for start in range(0, len(labels), rows or 1):
            here = slice(start, start + rows)
            sums.add(here, labels[here], None if weights is None else weights[here, None].to(bias.dtype))
        ctx.gradients = sums.gradients()
        ctx.mark_non_differentiable(sums.hits)
        return sums.total, sums.hits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *towards: Any) -> Any:
        scale, gradients = towards[0], ctx.gradients
        ctx.gradients = None  # they are scaled in place below
        if gradients is None:
            raise RuntimeError("the gradient of linear_cross_entropy can be taken once only")
        return *(gradient.mul_(scale) for gradient in gradients), None, None, None, None


class _Sums:
    """The loss, the hits and the three gradients, accumulated over blocks of rows."""

    def __init__(
        self, states: Tensor, weight: Tensor, bias: Tensor, *, precision: torch.dtype, learning: bool, rows: int
    ) -> None:
        self.states, self.weight, self.bias = states.to(precision), weight.to(precision), bias
        # Rows of 0: their scores are cut off, and their slopes are 0.
        missing = -len(bias) % WIDTHS.get(bias.device.type, 1)
        if missing and precision != bias.dtype:
            self.weight = functional.pad(self.weight, (0, 0, 0, missing))
        self.buffer = bias.new_empty(rows, len(bias))
        self.total = bias.new_zeros(())
        self.hits = torch.zeros((), dtype=torch.int64, device=bias.device)
        self.of_states = torch.empty_like(states) if learning else None
        # Those of weight and bias begin as those of the first block: no zeros are written and none added to.
        self.of_weight: Tensor | None = None
        self.of_bias: Tensor | None = None

    def add(self, here: slice, labels: Tensor, weights: Tensor | None) -> None:
        """Add the rows `here`, `weights` (rows, 1)."""
        scores = self._scores(self.states[here])  # (rows, V)
        chosen = scores.gather(1, labels[:, None])  # (rows, 1)
        largest = scores.amax(dim=1, keepdim=True)
        # Before softmax overwrites the scores.
        self.hits += hits(scores, chosen, largest, labels)
        # In place: `scores` and `probabilities` share the buffer.
        probabilities = torch.softmax(scores, dim=1, out=scores)
        # The largest probability is 1 / sum(exp(score - largest)): never 0, where the label's own may be.
        losses = largest - chosen - probabilities.amax(dim=1, keepdim=True).log()
        self.total += (losses if weights is None else losses * weights).sum()
        if self.of_states is not None:
            self._differentiate(self.of_states, here, probabilities, labels, weights)

    def _scores(self, states: Tensor) -> Tensor:
        scores = self.buffer[: len(states)]
        if states.dtype == scores.dtype:
            pieces = PIECES if scores.device.type == "cpu" else len(self.bias)
            for start in range(0, len(self.bias), pieces):
                some = slice(start, start + pieces)
                torch.addmm(self.bias[some], states, self.weight[some].t(), out=scores[:, some])
            return scores
        return torch.add(linear(states, self.weight)[:, : len(self.bias)], self.bias, out=scores)

    def _differentiate(
        self, of_states: Tensor, here: slice, probabilities: Tensor, labels: Tensor, weights: Tensor | None
    ) -> None:
        slopes = probabilities  # d loss / d score = probability - 1 at the label, in place
        slopes.scatter_add_(1, labels[:, None], slopes.new_full((len(labels), 1), -1.0))
        if weights is not None:
            slopes.mul_(weights)
        # score = states @ weight.T + bias: the gradients are sums over rows, products with weight, and with states.
        of_bias = slopes.sum(dim=0)
        if (columns := slopes.shape[1]) < len(self.weight):
            wide = self.states.new_empty(len(slopes), len(self.weight))  # a column for each row of `weight`
            wide[:, columns:] = 0
            wide[:, :columns] = slopes
            slopes = wide
        slopes, states = (convert_rows(rows, self.states.dtype) for rows in (slopes, self.states[here]))
        chunk = CHUNK_ROWS if is_compiled(slopes.device.type, slopes.dtype) else len(slopes)
        for gradient, some in zip(of_states[here].split(chunk), slopes.split(chunk)):
            gradient.copy_((some @ self.weight)[: len(gradient)])
        if self.of_weight is None or self.of_bias is None:
            self.of_weight, self.of_bias = (slopes.t() @ states)[: len(of_bias)].to(of_bias.dtype), of_bias
            return
        self.of_bias += of_bias
        if slopes.dtype == self.of_weight.dtype:
            self.of_weight.addmm_(slopes.t(), states)
        else:
            self.of_weight += (slopes.t() @ states)[: len(of_bias)]

    def gradients(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the gradients of states (M, D), weight (V, D) and bias (V,); None if they were not asked for."""
        if self.of_states is None:
            return None
        if self.of_weight is None or self.of_bias is None:  # no row
            pieces, width = len(self.bias), self.weight.shape[1]
            return self.of_states, self.bias.new_zeros(pieces, width), self.bias.new_zeros(pieces)
        return self.of_states, self.of_weight, self.of_bias


def hits(scores: Tensor, chosen: Tensor, largest: Tensor, labels: Tensor) -> Tensor:
    """Return the number () of rows in which the label has the highest of `scores` (M, V).

    `labels` (M,), `chosen` (M, 1): the scores of the labels, `largest` (M, 1): the highest of each row. On the CPU max
    is ten times faster than argmax, so argmax is computed only for rows in which the label's score equals the maximum,
    to break ties as argmax does.
    """
    if scores.device.type == "cpu":
        (rows,) = torch.nonzero((chosen >= largest).squeeze(1), as_tuple=True)
        scores, labels = scores[rows], labels[rows]
    return (scores.argmax(dim=1) == labels).sum()
