"""Influence of training rows on a score, by the last layer: how far a step of training on a row moves the score.

Pruthi, Liu, Kale and Sundararajan 2020 (TracIn), equation 1, for the weights of the last layer and for the finished
model alone. The gradient of a row's loss by that layer is error x state, and so the product of two gradients is the
product of two errors times that of two states: no pass goes back through the encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from osbert.data.batch import Batch
from osbert.data.example import Example
from osbert.errors import UserError
from osbert.evaluation.forward import batches
from osbert.models.contract import Head, Learner, States

ScoreWeights = Sequence[NDArray[np.floating]]
"""A score as weights (K,) of the outputs of each of its sequences."""


@dataclass(frozen=True)
class LastLayerPass:
    """What goes into the last layer, `states` (B, D), and the slopes (B, K) of a number by what comes out."""

    states: Tensor
    slopes: Tensor


@dataclass(frozen=True)
class RowInfluence:
    """Of a row: how far a step of size 1 on it raises each of E scores, `pulls` (E,), and its cosine to their text."""

    pulls: NDArray[np.float64]
    cosine: float


class Influence:
    """The gradients of E scores of one text by the last layer, with which rows are compared.

    Memory is that of these gradients, E x K x D, whatever the number of rows.
    """

    def __init__(
        self, learner: Learner, name: str, examples: Sequence[Example], scores: Sequence[ScoreWeights]
    ) -> None:
        """Take the text's sequences and scores of the head `name`. Raises UserError if the head has no last layer."""
        self.learner = learner
        self.head = learner.heads[name]
        self.layer = require_last_layer(self.head)
        self.gradients = torch.zeros(len(scores), self.layer.out_features, self.layer.in_features + 1)
        self.state = torch.zeros(self.layer.in_features)
        for batch in batches(examples):
            places = batch.records.tolist()
            for number, weights in enumerate(scores):
                own = torch.from_numpy(np.stack([weights[place] for place in places])).float()
                passed = self._pass(batch, own)
                self.gradients[number] += passed.slopes.T @ _with_one(passed.states)
            self.state += passed.states.sum(dim=0) / len(examples)

    def of(self, batch: Batch) -> dict[int, RowInfluence]:
        """Return the influence of each record of a batch, which has the targets of all of its sequences."""
        passed = self._pass(batch, None)
        numbers, rows = batch.records.unique(return_inverse=True)
        states = _with_one(passed.states)  # (B, D + 1)
        # A step goes against the loss's gradient: hence the sign.
        each = -torch.einsum("bk,ekd,bd->be", passed.slopes, self.gradients, states)
        pulls = each.new_zeros(len(numbers), each.shape[1]).index_add(0, rows, each)
        sums = passed.states.new_zeros(len(numbers), passed.states.shape[1]).index_add(0, rows, passed.states)
        cosines = torch.cosine_similarity(sums, self.state[None], dim=1)
        return {
            number: RowInfluence(pull, cosine)
            for number, pull, cosine in zip(numbers.tolist(), pulls.double().numpy(), cosines.tolist())
        }

    def _pass(self, batch: Batch, weights: Tensor | None) -> LastLayerPass:
        """Return a pass over a batch, for the sum of `weights` (B, K) times the head's outputs; None: for the loss."""
        kept: list[tuple[Tensor, Tensor]] = []

        def cut(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            leaf = output.detach().requires_grad_()
            kept.append((inputs[0].detach(), leaf))
            return leaf

        there = batch.to(next(self.learner.parameters()).device)
        with torch.inference_mode(False):
            with torch.no_grad():
                states = self.learner.states(there)
            handle = self.layer.register_forward_hook(cut)
            try:
                with torch.enable_grad():
                    total = self._total(states, there, weights)
            finally:
                handle.remove()
            ((inward, leaf),) = kept
            (slopes,) = torch.autograd.grad(total, leaf)
        return LastLayerPass(inward.float().cpu(), slopes.float().cpu())

    def _total(self, states: States, batch: Batch, weights: Tensor | None) -> Tensor:
        if weights is None:
            return self.head(states, batch).total
        outputs = self.head.outputs(states, batch)
        return (outputs * weights.to(outputs)).sum()


def require_last_layer(head: Head) -> nn.Linear:
    """Return the linear layer that gives a head's outputs for whole sequences. Raises UserError if it has none."""
    layer = getattr(head, "linear", None)
    if head.per_token or not isinstance(layer, nn.Linear):
        raise UserError(
            "Training rows can be compared for models that say one thing of a text, such as a label, a number or a "
            "choice: not for tags, answers in a paragraph, masks or vectors.",
            code="unsupported-model",
        )
    return layer


def _with_one(states: Tensor) -> Tensor:
    """Return states (B, D + 1) with a column of ones, which the bias stands on."""
    return torch.cat([states, states.new_ones(len(states), 1)], dim=1)
