"""The head of span boundaries: pieces of a masked span from the states of the tokens on both sides of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Loss, Sizes, States
from osbert.models.fast.cross_entropy import linear_cross_entropy
from osbert.models.fast.linear import Linear
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.initialisation import initialise
from osbert.models.transformer.block import ACTIVATIONS, norm_of


class BoundaryLayers(nn.Module):
    """f of Joshi et al. 2020, section 3.2: states before and after a span, and a position in it -> vectors (M, D').

    h_0 = [x_(s-1); x_(e+1); p_(i-s+1)], h_1 = norm(activation(W_1 h_0)), y_i = norm(activation(W_2 h_1)).
    """

    def __init__(self, sizes: Sizes, width: int, *, reach: int, position_width: int) -> None:
        """Make the layers for `reach` positions and pieces of `width` = D'."""
        super().__init__()
        self.positions = nn.Embedding(reach, position_width)
        self.inner = Linear(2 * sizes.width + position_width, sizes.width, bias=sizes.head_biases)
        self.inner_norm = norm_of(sizes, sizes.width, biases=sizes.head_biases)
        self.outer = Linear(sizes.width, width, bias=sizes.head_biases)
        self.outer_norm = norm_of(sizes, width, biases=sizes.head_biases)
        self.activation = ACTIVATIONS[sizes.piece_activation or sizes.activation]
        self.bias = nn.Parameter(torch.zeros(sizes.vocabulary))
        initialise(self, sizes.deviation)

    def forward(self, before: Tensor, after: Tensor, positions: Tensor) -> Tensor:
        """Return y (M, D') for the states before and after the spans (M, D) and the positions (M,), from 0."""
        inputs = torch.cat([before, after, self.positions(positions)], dim=-1)  # (M, 2 D + P)
        inner = self.inner_norm(self.activation(self.inner(inputs)))  # (M, D)
        return self.outer_norm(self.activation(self.outer(inner)))


class SpanBoundaryHead(MaskedLanguageHead):
    """A masked-language head whose loss has each piece twice: from its state, and from the boundary of its span.

    Its outputs are those of the masked-language head. The products with the vocabulary share the table of pieces.
    """

    sparse = False  # the states beside a span count, too
    beside = ("boundary.",)

    def __init__(self, backbone: Backbone, *, target: str, reach: int, position_width: int) -> None:
        """Stand on `backbone`; the boundary predicts the first `reach` pieces of a span."""
        super().__init__(backbone, target=target)
        self.reach = reach
        width = self.pieces.shape[1]
        self.boundary = BoundaryLayers(backbone.architecture, width, reach=reach, position_width=position_width)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the sum of both cross-entropies in nats, the hits of the states, and the boundaries' accuracy."""
        loss = super().forward(states, batch)
        target = batch.targets[self.target]
        positions, ends = span_positions(target.index)
        known = positions < self.reach
        index, positions = target.index[known], positions[known]
        vectors = self.boundary(states.hidden[index - positions - 1], states.hidden[ends[known] + 1], positions)
        weights = None if target.weights is None else target.weights[known]
        total, hits = linear_cross_entropy(vectors, self.pieces, self.boundary.bias, target.labels[known], weights)
        ratios = {"boundary": (hits, hits.new_tensor(len(index)))}
        return Loss(total=loss.total + total, count=loss.count, hits=loss.hits, ratios=ratios)

    def flops(self, labels: int) -> int:
        """Return the FLOPs for this number of labels, with the second product with the piece embeddings."""
        return super().flops(labels) + 2 * labels * self.pieces.numel()


def span_positions(index: Tensor) -> tuple[Tensor, Tensor]:
    """Return the position in its run (M,) of each of the ascending tokens `index` (M,), and the run's last token (M,).

    A run never goes from one sequence into the next: special tokens, which are not masked, stand between.

    >>> [part.tolist() for part in span_positions(torch.tensor([4, 5, 8, 9, 10]))]
    [[0, 1, 0, 1, 2], [5, 5, 10, 10, 10]]
    """
    begins = torch.ones_like(index, dtype=torch.bool)
    begins[1:] = index[1:] != index[:-1] + 1
    firsts = begins.nonzero().squeeze(1)
    sizes = torch.diff(firsts, append=firsts.new_tensor([len(index)]))
    positions = torch.arange(len(index), device=index.device) - firsts.repeat_interleave(sizes)
    return positions, (index - positions) + (sizes - 1).repeat_interleave(sizes)
