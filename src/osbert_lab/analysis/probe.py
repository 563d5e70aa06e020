"""Linear probes on fixed states: of one layer, of a mix of layers, their codelength, and the control task.

A probe is multinomial logistic regression. Its codelength (Voita and Titov 2020, section 2.2) measures how much
training data it needs, which accuracy alone does not. The mix of layers is that of Tenney et al. 2019, section 3.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from osbert.evaluation.bootstrap import bootstrap, percentiles
from osbert_lab.analysis.advance import SILENT, Advance
from osbert_lab.analysis.figures import Floats

STRENGTHS = (1e-4, 1e-3, 1e-2)
"""Candidate L2 penalties; one is chosen on held-out words."""
STEPS = 100
"""Most steps of L-BFGS. It starts at 0, so that a probe needs no seed."""
GRADIENT = 1e-4
"""L-BFGS stops when no derivative is larger: predictions no longer change."""
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Ends of the portions of the online code, as fractions of the labels."""

Labels = NDArray[np.int64]
States = NDArray[np.floating]


@dataclass(frozen=True)
class Standard:
    """The mean and the standard deviation (D,) of each feature of some states."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, states: States) -> Standard:
        """Return the mean and deviation of states (n, D)."""
        given = torch.from_numpy(np.asarray(states, np.float32))
        return cls(given.mean(0), given.std(0, correction=0).clamp_min(1e-6))

    def apply(self, states: States) -> Tensor:
        """Return states (n, D) minus the mean, divided by the deviation."""
        return (torch.from_numpy(np.asarray(states, np.float32)) - self.mean) / self.deviation


class LinearProbe:
    """Logistic regression with weights (D, K) and biases (K,) on states standardised as in training."""

    def __init__(
        self, states: States, labels: Labels, classes: int, *, strength: float, standard: Standard | None = None
    ) -> None:
        """Minimise the mean cross-entropy plus `strength` times the squared weights on states (n, D), labels (n,)."""
        self.trained = len(labels)
        self.standard = standard or Standard.of(states)
        given, target = self.standard.apply(states), torch.from_numpy(labels)
        self.weights = torch.zeros(given.shape[1], classes, dtype=torch.float32, requires_grad=True)
        self.biases = torch.zeros(classes, dtype=torch.float32, requires_grad=True)

        def loss() -> Tensor:
            scores = given @ self.weights + self.biases
            return functional.cross_entropy(scores, target) + strength * self.weights.square().sum()

        minimise(loss, [self.weights, self.biases])

    def predict(self, states: States) -> Labels:
        """Return the most probable label (n,) of states (n, D)."""
        labels: Labels = self._scores(states).argmax(-1).numpy()
        return labels

    def bits(self, states: States, labels: Labels) -> Floats:
        """Return the cost in bits, -log2 of the probability, of each label (n,) given its state (n, D).

        The probability is smoothed as if the probe had seen each label once more. So a label costs at most log2(trained
        + K), even if the training data lacks it.
        """
        # The probability of the true label of each row: fancy indexing with (row, label).
        given = self._scores(states).double().softmax(-1).numpy()[np.arange(len(labels)), labels]
        # -log2((trained p + 1) / (trained + K)): additive smoothing of the probability p.
        costs: Floats = np.log2(self.trained + len(self.biases)) - np.log2(self.trained * given + 1)
        return costs

    def _scores(self, states: States) -> Tensor:
        with torch.no_grad():
            return self.standard.apply(states) @ self.weights + self.biases


class MixedProbe:
    """A linear probe of a mix of layers, sum_l softmax(s)_l h_l, whose `layer_weights` (L + 1,) are trained with it.

    Each feature of each layer is standardised first; otherwise the mix would only undo the scales of the layers. The
    mix is divided by its own root mean square, which the paper's factor allows: a mix is smaller than its layers and
    would need larger weights, whose penalty would make the probe choose a single layer.
    """

    def __init__(self, states: States, labels: Labels, classes: int, *, strength: float) -> None:
        """Train on states (L + 1, n, D) with labels (n,), starting from equal weights of the layers."""
        self.standards = [Standard.of(layer_states) for layer_states in states]
        given, target = self._standardise(states), torch.from_numpy(labels)
        self.mix = torch.zeros(len(states), dtype=torch.float32, requires_grad=True)
        self.weights = torch.zeros(given.shape[-1], classes, dtype=torch.float32, requires_grad=True)
        self.biases = torch.zeros(classes, dtype=torch.float32, requires_grad=True)

        def loss() -> Tensor:
            mixed = self._mix_layers(given)
            # The size depends on the mix, so it is computed in every step; `self.size` keeps the last one for
            # prediction.
            scores = mixed / _size(mixed) @ self.weights + self.biases
            return functional.cross_entropy(scores, target) + strength * self.weights.square().sum()

        minimise(loss, [self.mix, self.weights, self.biases])
        with torch.no_grad():
            self.size = _size(self._mix_layers(given))

    @property
    def layer_weights(self) -> Floats:
        """Return the weight (L + 1,) of each layer in the mix; they sum to 1."""
        weights: Floats = self.mix.detach().double().softmax(-1).numpy()
        return weights

    def predict(self, states: States) -> Labels:
        """Return the most probable label (n,) of states (L + 1, n, D)."""
        with torch.no_grad():
            mixed = self._mix_layers(self._standardise(states)) / self.size
            labels: Labels = (mixed @ self.weights + self.biases).argmax(-1).numpy()
        return labels

    def _standardise(self, states: States) -> Tensor:
        return torch.stack([standard.apply(layer) for standard, layer in zip(self.standards, states, strict=True)])

    def _mix_layers(self, given: Tensor) -> Tensor:
        layers, *shape = given.shape
        # (L + 1,) @ (L + 1, n * D): one product, without a copy of the states.
        return (self.mix.softmax(-1) @ given.view(layers, -1)).view(shape)


def _size(mixed: Tensor) -> Tensor:
    return mixed.square().mean().clamp_min(1e-12).sqrt()  # a layer may be 0 everywhere


def minimise(
    loss: Callable[[], Tensor], parameters: Sequence[Tensor], *, steps: int = STEPS, gradient: float = GRADIENT
) -> None:
    """Minimise a loss over parameters in place by L-BFGS, from their current values.

    `steps`: the most; `gradient`: the largest entry of the gradient at which it stops.
    """
    optimizer = torch.optim.LBFGS(parameters, max_iter=steps, tolerance_grad=gradient, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss_value = loss()
        loss_value.backward()
        return loss_value

    optimizer.step(closure)


def choose_strength(
    states: States,
    labels: Labels,
    classes: int,
    advance: Advance = SILENT,
) -> float:
    """Return the strength of the highest accuracy on every fifth state, trained on the others."""
    held = np.arange(len(labels)) % 5 == 4

    def right(strength: float) -> float:
        probe = LinearProbe(states[~held], labels[~held], classes, strength=strength)
        advance(len(labels))
        return float((probe.predict(states[held]) == labels[held]).mean())

    return max(STRENGTHS, key=right)


def codelength(
    states: States,
    labels: Labels,
    classes: int,
    *,
    strength: float,
    advance: Advance = SILENT,
) -> Floats:
    """Return the bits (n,) of labels (n,) in the online code given states (n, D): a uniform code first, then by probes.

    Their sum is the codelength. Each portion is coded by a probe that was trained on all portions before it. `strength`
    is that of a probe on all labels. With fewer labels it is proportionally larger, as for one fixed prior on the
    weights. Calls `advance` with the labels that each probe was trained on.
    """
    standard = Standard.of(states)
    ends = portion_ends(len(labels))
    # The first portion has no training data: every label costs log2(K).
    bits = [np.full(ends[0], math.log2(classes))]
    for begin, end in pairwise(ends):
        # The loss is a mean over labels, so a penalty that is constant in total grows as 1 / n.
        portion_strength = strength * len(labels) / begin
        probe = LinearProbe(states[:begin], labels[:begin], classes, strength=portion_strength, standard=standard)
        bits.append(probe.bits(states[begin:end], labels[begin:end]))
        advance(begin)
    return np.concatenate(bits)


def portion_ends(count: int) -> list[int]:
    """Return the ends of the portions of `count` labels, ascending and without repeats.

    >>> portion_ends(100)
    [1, 2, 4, 7, 13, 25, 50, 100]
    """
    return sorted({math.ceil(part * count) for part in PORTIONS})


def cumulative(
    states: tuple[States, States],
    labels: tuple[Labels, Labels],
    classes: int,
    strength: float,
    advance: Advance = SILENT,
) -> tuple[NDArray[np.bool_], Floats]:
    """Return which labels a mix of the layers up to each one predicts (L + 1, n), and the weights of the full mix.

    `states` and `labels`: (training, scored). The weights (L + 1,) of the mix of all layers give the centre of gravity.
    Calls `advance` with the labels that each mix was trained on, for each of its layers.
    """
    right = []
    for layers in range(1, len(states[0]) + 1):
        probe = MixedProbe(states[0][:layers], labels[0], classes, strength=strength)
        right.append(probe.predict(states[1][:layers]) == labels[1])
        advance(layers * len(labels[0]))
    return np.array(right), probe.layer_weights


def compute_expected_layer(scores: Floats) -> float:
    """Return sum_l l (score_l - score_(l-1)) / (score_L - score_0); NaN if the layers add nothing to the embeddings.

    Tenney et al. 2019, section 3.2. `scores` (L + 1,): those of the mixes of the layers up to each.

    >>> round(compute_expected_layer(np.array([0.5, 0.7, 0.9, 0.9])), 3)
    1.5
    """
    gains = np.diff(scores)
    whole = float(scores[-1] - scores[0])
    return float(np.arange(1, len(scores)) @ gains) / whole if whole > 0 else math.nan


def bootstrap_expected_layer(right: Floats, counts: Floats, seed: int) -> tuple[float, float]:
    """Return the 95% interval of the expected layer by the bootstrap over texts.

    `right` (L + 1, T): the number of correct items of each text by the mix up to each layer. `counts` (T,): the number
    of items. The probes are not trained again. Samples in which the layers add nothing to the embeddings are skipped.
    """

    def layer_of_sample(rows: NDArray[np.intp]) -> list[float]:
        return [compute_expected_layer(right[:, rows].sum(axis=1) / counts[rows].sum())]

    return percentiles(bootstrap(layer_of_sample, len(counts), seed=seed)[:, 0])


def control_labels(words: Sequence[str], probabilities: Floats, seed: int) -> Labels:
    """Return a random label (n,) for each word, the same for every occurrence of a type, with probabilities (K,).

    The control task of Hewitt and Liang 2019, section 2: a probe can only memorise these labels.
    """
    ends = np.cumsum(probabilities)
    drawn = {
        # Inverse-transform sampling with a generator for each type: crc32 gives the same label in every process.
        word: int(np.searchsorted(ends, np.random.default_rng([seed, zlib.crc32(word.encode())]).random() * ends[-1]))
        for word in {*words}
    }
    return np.array([drawn[word] for word in words], np.int64)
