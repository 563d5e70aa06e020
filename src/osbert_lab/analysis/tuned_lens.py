"""The tuned lens (Belrose et al. 2023, section 2): an affine map from a layer's states to the model's own predictions.

The map is trained to minimise KL(last || lens), the divergence of the distribution that the lens predicts from that of
the last layer. It starts at the least-squares map to the states of the last layer (lens.py), so few passes suffice.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from osbert.analysis.likelihood import LanguageModel
from osbert_lab.analysis.advance import SILENT, Advance
from osbert_lab.analysis.figures import Floats
from osbert_lab.analysis.lens import SCORES, AffineLens

PASSES, STEP, RATE = 5, 64, 1e-3
"""Passes over the states, states in a step, and the learning rate of Adam at the beginning; it falls linearly to 0."""


class TunedLens:
    """The map x @ weight + bias (D -> D) of one layer."""

    def __init__(self, weight: Floats, bias: Floats) -> None:
        """Take the weight (D, D) and the bias (D,)."""
        self.weight = weight
        self.bias = bias

    @classmethod
    def train(
        cls,
        language: LanguageModel,
        states: Floats,
        last: Floats,
        advance: Advance = SILENT,
    ) -> TunedLens:
        """Train the map from states (n, D) of a layer, given those of the last layer; the same call gives the same map.

        Every fifth state is held out: the map with the least divergence on these after a pass is kept, or the map at
        the start if no pass improves on it. Calls `advance` with the states of each step.
        """
        device = language.head.pieces.device
        near = AffineLens.fit(states.astype(np.float64), last.astype(np.float64))
        # x + shift + (x - mean) @ change, as one product and one sum.
        start = np.eye(states.shape[1]) + near.change, near.shift - near.mean @ near.change
        lens = [torch.from_numpy(part).to(device, torch.float32).requires_grad_() for part in start]
        inputs, ends = (torch.from_numpy(np.asarray(part, np.float32)).to(device) for part in (states, last))
        fitting = fitting_states(states)
        judging = np.setdiff1d(np.arange(len(states)), fitting)
        optimizer, rng = torch.optim.Adam(lens, lr=RATE), np.random.default_rng(0)
        training = language.learner.training
        language.learner.eval()
        try:
            best = _Candidate.of(language, lens, inputs[judging], ends[judging])
            for number in range(PASSES):
                for group in optimizer.param_groups:
                    group["lr"] = RATE * (1 - number / PASSES)
                for part in torch.from_numpy(fitting[rng.permutation(len(fitting))]).split(STEP):
                    loss = divergence(language, ends[part], inputs[part], lens) / len(part)
                    # Gradients of the map alone: those of the head would cost as much again, and are not used.
                    for weight, gradient in zip(lens, torch.autograd.grad(loss, lens), strict=True):
                        weight.grad = gradient
                    optimizer.step()
                    advance(len(part))
                now = _Candidate.of(language, lens, inputs[judging], ends[judging])
                best = min(best, now, key=lambda candidate: candidate.loss)
        finally:
            language.learner.train(training)
        return cls(*best.lens)

    def __call__(self, states: Floats) -> Floats:
        """Return the mapped states (n, D)."""
        mapped: Floats = states @ self.weight + self.bias
        return mapped


def fitting_states(states: Floats) -> NDArray[np.int64]:
    """Return the indices of the states (n, D) that a map is trained on: all but every fifth."""
    return np.flatnonzero(np.arange(len(states)) % 5 != 4)


class _Candidate:
    """A map as it is at a moment, and its divergence on held-out states."""

    def __init__(self, loss: float, lens: tuple[Floats, Floats]) -> None:
        self.loss, self.lens = loss, lens

    @classmethod
    def of(cls, language: LanguageModel, lens: list[Tensor], states: Tensor, last: Tensor) -> _Candidate:
        with torch.no_grad():
            parts = zip(last.split(SCORES), states.split(SCORES), strict=True)
            total = sum(float(divergence(language, end, part, lens)) for end, part in parts)
        weight, bias = (part.detach().cpu().numpy().copy() for part in lens)
        return cls(total, (weight, bias))


def divergence(language: LanguageModel, last: Tensor, states: Tensor, lens: list[Tensor]) -> Tensor:
    """Return the sum of KL(last || lens) (), in nats, over states (n, D) of the last layer and of a lower one."""
    weight, bias = lens
    with torch.no_grad():
        wanted = language.head.scores(last).float().log_softmax(-1)
    log_predictions = language.head.scores(states @ weight + bias).float().log_softmax(-1)
    return functional.kl_div(log_predictions, wanted, reduction="sum", log_target=True)
