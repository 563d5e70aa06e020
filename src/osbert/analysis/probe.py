"""A linear probe: multinomial logistic regression on states that do not change, and Hewitt and Liang's control task."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from osbert.analysis.figures import Floats

STRENGTHS = (1e-4, 1e-3, 1e-2)
"""Weights of the squared weights in the loss, of which one is chosen on words that were held out."""
STEPS = 100
"""Most steps of L-BFGS, which begins at 0 and so needs no seed."""

Labels = NDArray[np.int64]
States = NDArray[np.floating]


class LinearProbe:
    """Weights (D, K) and biases (K,) over states that are standardised by the mean and deviation of the training."""

    def __init__(self, states: States, labels: Labels, classes: int, *, strength: float) -> None:
        """Train on states (n, D) with labels (n,): the mean cross-entropy and `strength` times the squared weights."""
        given = torch.from_numpy(np.asarray(states, np.float32))
        self.mean = given.mean(0)
        self.deviation = given.std(0, correction=0).clamp_min(1e-6)
        given = (given - self.mean) / self.deviation
        target = torch.from_numpy(labels)
        self.weights = torch.zeros(given.shape[1], classes, requires_grad=True)
        self.biases = torch.zeros(classes, requires_grad=True)
        optimizer = torch.optim.LBFGS([self.weights, self.biases], max_iter=STEPS, line_search_fn="strong_wolfe")

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            found = functional.cross_entropy(given @ self.weights + self.biases, target)
            found = found + strength * self.weights.square().sum()
            found.backward()
            return found

        optimizer.step(loss)

    def predict(self, states: States) -> Labels:
        """Return the most probable label (n,) of states (n, D)."""
        given = (torch.from_numpy(np.asarray(states, np.float32)) - self.mean) / self.deviation
        with torch.no_grad():
            found: Labels = (given @ self.weights + self.biases).argmax(-1).numpy()
        return found


def choose_strength(states: States, labels: Labels, classes: int) -> float:
    """Return the strength whose probe is right most often about every fifth state, of those trained on the others."""
    held = np.arange(len(labels)) % 5 == 4

    def right(strength: float) -> float:
        probe = LinearProbe(states[~held], labels[~held], classes, strength=strength)
        return float((probe.predict(states[held]) == labels[held]).mean())

    return max(STRENGTHS, key=right)


def control_labels(words: Sequence[str], probabilities: Floats, seed: int) -> Labels:
    """Return a label (n,) for each word, sampled for its type from the labels' probabilities (K,): the same everywhere.

    Hewitt and Liang 2019, section 2: what a probe learns of these labels it has learnt by heart.
    """
    ends = np.cumsum(probabilities)
    drawn = {
        word: int(np.searchsorted(ends, np.random.default_rng([seed, zlib.crc32(word.encode())]).random() * ends[-1]))
        for word in {*words}
    }
    return np.array([drawn[word] for word in words], np.int64)
