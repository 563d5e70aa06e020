"""Influence of training rows on a score, by the last layer: how far a training step on a row moves the score.

Pruthi, Liu, Kale and Sundararajan 2020 (TracIn), equation 1, for the weights of the last layer and the finished model
alone. The gradient of a row's loss by that layer is the outer product of error and state. So the product of two such
gradients is the product of the errors times the product of the states: the encoder needs no backward pass.
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
from osbert.models.initialisation import copy_modules

ScoreWeights = Sequence[NDArray[np.floating]]
"""A score as weights (K,) of the outputs, one array for each of its sequences."""


@dataclass(frozen=True)
class LastLayerPass:
    """The input of the last layer, `states` (B, D), and the gradient (B, K) of a number by its output."""

    states: Tensor
    slopes: Tensor


@dataclass(frozen=True)
class RowInfluence:
    """The influence of a row: how far a step of size 1 raises each of E scores, and its cosine to the text."""

    pulls: NDArray[np.float64]
    cosine: float


class Influence:
    """The gradients of E scores of one text by the last layer, with which training rows are compared.

    Memory: E x K x D for these gradients, independent of the number of rows.
    """

    def __init__(
        self, learner: Learner, name: str, examples: Sequence[Example], scores: Sequence[ScoreWeights]
    ) -> None:
        """Compute the gradients of a text's scores. Raises UserError if the head `name` has no last layer."""
        self.learner = learner
        # A copy, whose last layer is hooked.
        self.head = copy_modules(learner.heads[name])
        self.layer = require_last_layer(self.head)
        self.gradients = torch.zeros(
            len(scores), self.layer.out_features, self.layer.in_features + 1, dtype=torch.float32
        )
        self.state = torch.zeros(self.layer.in_features, dtype=torch.float32)
        for batch in batches(examples):
            indices = batch.records.tolist()
            for number, weights in enumerate(scores):
                batch_weights = torch.from_numpy(np.stack([weights[index] for index in indices])).float()
                passed = self._pass(batch, batch_weights)
                # (K, B) @ (B, D + 1): the sum over the sequences of the outer products.
                self.gradients[number] += passed.slopes.T @ _with_one(passed.states)
            self.state += passed.states.sum(dim=0) / len(examples)

    def of(self, batch: Batch) -> dict[int, RowInfluence]:
        """Return the influence of each record of a batch. The batch has targets and all sequences of its records."""
        passed = self._pass(batch, None)
        numbers, rows = batch.records.unique(return_inverse=True)
        states = _with_one(passed.states)  # (B, D + 1)
        # A step goes against the loss's gradient: hence the sign.
        each = -torch.einsum("bk,ekd,bd->be", passed.slopes, self.gradients, states)
        # A record may have several sequences (windows): their influences and states are summed.
        pulls = each.new_zeros(len(numbers), each.shape[1]).index_add(0, rows, each)
        sums = passed.states.new_zeros(len(numbers), passed.states.shape[1]).index_add(0, rows, passed.states)
        cosines = torch.cosine_similarity(sums, self.state[None], dim=1)
        return {
            number: RowInfluence(pull, cosine)
            for number, pull, cosine in zip(numbers.tolist(), pulls.double().numpy(), cosines.tolist())
        }

    def _pass(self, batch: Batch, weights: Tensor | None) -> LastLayerPass:
        """Run a batch; differentiate the sum of `weights` (B, K) times the outputs, or if None the loss."""
        captures: list[tuple[Tensor, Tensor]] = []

        def cut(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            # The output becomes a leaf: the gradient stops here and never reaches the encoder.
            leaf = output.detach().requires_grad_()
            captures.append((inputs[0].detach(), leaf))
            return leaf

        device_batch = batch.to(next(self.learner.parameters()).device)
        # Tensors made in inference mode cannot take part in autograd, even if a caller has it on.
        with torch.inference_mode(False):
            with torch.no_grad():
                states = self.learner.states(device_batch)
            handle = self.layer.register_forward_hook(cut)
            try:
                with torch.enable_grad():
                    total = self._total(states, device_batch, weights)
            finally:
                handle.remove()
            ((inward, leaf),) = captures
            (slopes,) = torch.autograd.grad(total, leaf)
        return LastLayerPass(inward.float().cpu(), slopes.float().cpu())

    def _total(self, states: States, batch: Batch, weights: Tensor | None) -> Tensor:
        if weights is None:
            return self.head(states, batch).total
        outputs = self.head.outputs(states, batch)
        return (outputs * weights.to(outputs)).sum()


def require_last_layer(head: Head) -> nn.Linear:
    """Return the linear layer of a head with one output per sequence. Raises UserError if it has none."""
    layer = getattr(head, "linear", None)
    if head.per_token or not isinstance(layer, nn.Linear):
        raise UserError(
            "Training rows can be compared only for models with one prediction per text (classify, regress, "
            "choose), not for tags, spans, masks or vectors.",
            code="unsupported-model",
        )
    return layer


def _with_one(states: Tensor) -> Tensor:
    """Return states (B, D + 1) with a column of ones, whose weights are the bias."""
    return torch.cat([states, states.new_ones(len(states), 1)], dim=1)
