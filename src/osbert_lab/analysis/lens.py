"""Lenses: the predictions of a model from the states of a lower layer (nostalgebraist 2020; Belrose et al. 2023).

The logit lens passes a layer's states through whatever follows the last layer, such as a final norm, and then through
the language head. The tuned lens of Belrose et al. applies an affine map first (tuned_lens.py). The map at which its
training starts is here: the least-squares fit to the states of the last layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.analysis.likelihood import LanguageModel
from osbert.data.batch import micro_batches
from osbert.data.example import Example
from osbert.evaluation.forward import TOKENS, evaluating
from osbert_lab.analysis.figures import Floats
from osbert_lab.analysis.hooks import Change, change_states

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
"""Candidate ridge penalties on the map's distance from the identity, relative to the variance of the states."""
SCORES = 256
"""Positions whose logits over the vocabulary are in memory at a time."""


class AffineLens:
    """The affine map x + shift + (x - mean) @ change (D -> D), shrunk towards the identity plus a shift."""

    def __init__(self, states: Floats, last: Floats, *, strength: float) -> None:
        """Fit the map from states (n, D) of a layer to those of the last layer, by ridge regression."""
        self.mean = states.mean(0)
        # The regression predicts the difference: a penalty on `change` then shrinks towards the identity.
        residual = last - states
        self.shift = residual.mean(0)
        centred = states - self.mean
        covariance = centred.T @ centred / len(states)
        penalty = max(strength * float(np.trace(covariance)) / len(covariance), 1e-12)
        target = centred.T @ (residual - self.shift) / len(states)
        # Normal equations of ridge regression: (C + penalty I) change = Cov(x, residual).
        self.change = np.linalg.solve(covariance + penalty * np.eye(len(covariance)), target)

    @classmethod
    def fit(cls, states: Floats, last: Floats) -> AffineLens:
        """Fit the map with the penalty of the smallest error on every fifth state, fitted to the others."""
        held = np.arange(len(states)) % 5 == 4

        def error(strength: float) -> float:
            lens = cls(states[~held], last[~held], strength=strength)
            return float(np.square(lens(states[held]) - last[held]).mean())

        return cls(states, last, strength=min(STRENGTHS, key=error))

    def __call__(self, states: Floats) -> Floats:
        """Return the mapped states (n, D)."""
        moved: Floats = states + self.shift + (states - self.mean) @ self.change
        return moved


def layer_states(
    language: LanguageModel, examples: Sequence[Example]
) -> Iterator[tuple[NDArray[np.int64], Floats, int]]:
    """Yield the pieces to predict (M,), the head's input from each layer (L + 1, M, D), and the tokens read.

    For a layer below the last that is its output passed through the top of the model, as if no layer were between.
    """
    backbone = language.learner.backbone
    changes: dict[int, Change] = {}
    changed = change_states(language.learner, changes).backbone
    for batch in micro_batches(examples, TOKENS):
        with evaluating(language.learner) as device:
            device_batch = batch.to(device)
            target = device_batch.targets[language.head.target]
            *below, last = backbone.layers(device_batch)
            top_states = []
            for state in below:
                # Replaces the output of the last layer by that of a lower one; the rest of the model is unchanged.
                changes[backbone.architecture.layers] = lambda _, state=state: state  # type: ignore[misc]
                top_states.append(changed(device_batch).hidden[target.index])
            states = torch.stack([*top_states, last[target.index]]).float().cpu().numpy()
            labels = target.labels.cpu().numpy()
        yield labels, states, batch.tokens


def read_out(language: LanguageModel, states: Sequence[Floats]) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return the most probable pieces (M, n), the entropies and the divergences (M, n) of M times states (n, D).

    The last of the M states are those of the last layer. The divergence is KL(last || other) of the predicted
    distributions, in nats.
    """
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    with evaluating(language.learner) as device:
        for first in range(0, len(states[-1]), SCORES):
            top = _logs(language, states[-1][first : first + SCORES], device)  # once for all layers
            rows = []
            for layer, states_of_layer in enumerate(states, 1):
                log_probabilities = (
                    top if layer == len(states) else _logs(language, states_of_layer[first : first + SCORES], device)
                )
                entropy = -(log_probabilities.exp() * log_probabilities).sum(-1)
                rows.append(
                    (
                        log_probabilities.argmax(-1).cpu(),
                        entropy.cpu(),
                        (top.exp() * (top - log_probabilities)).sum(-1).cpu(),
                    )
                )
            likeliest, entropies, divergences = map(torch.stack, zip(*rows, strict=True))
            parts.append((likeliest, entropies, divergences))
    pieces, *numbers = (torch.cat(column, dim=1).numpy() for column in zip(*parts, strict=True))
    return pieces, numbers[0].astype(np.float64), numbers[1].astype(np.float64)


def _logs(language: LanguageModel, states: Floats, device: torch.device) -> Tensor:
    hidden = torch.from_numpy(np.asarray(states, np.float32)).to(device, next(language.head.parameters()).dtype)
    return language.head.scores(hidden).float().log_softmax(-1)


def settling_layers(likeliest: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each of n positions the layer from which on the top piece (L + 1, n) is the final one.

    >>> settling_layers(np.array([[1, 5], [3, 2], [3, 4]]))
    array([1, 2])
    """
    same = likeliest == likeliest[-1]
    steady = np.logical_and.accumulate(same[::-1])  # from the last layer down
    layers: NDArray[np.int64] = len(likeliest) - steady.sum(0)
    return layers
