"""Linear probes on states that do not change: of one layer, of a mix of layers, their codelength, the control task.

A probe is multinomial logistic regression. Its codelength (Voita and Titov 2020, section 2.2) counts how much training
its answers take, where accuracy alone does not; the mix of layers is that of Tenney et al. 2019, section 3.
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

from osbert.analysis.figures import Floats
from osbert.evaluation.bootstrap import bootstrap, percentiles

STRENGTHS = (1e-4, 1e-3, 1e-2)
"""Weights of the squared weights in the loss, of which one is chosen on words that were held out."""
STEPS = 100
"""Most steps of L-BFGS, which begins at 0 and so needs no seed."""
GRADIENT = 1e-4
"""The largest derivative of the loss at which it stops: answers change no more from there on."""
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Where the portions of the online code end, as parts of all labels."""

Labels = NDArray[np.int64]
States = NDArray[np.floating]


@dataclass(frozen=True)
class Standard:
    """The mean and the deviation (D,) of each number of some states."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, states: States) -> Standard:
        """Return those of states (n, D)."""
        given = torch.from_numpy(np.asarray(states, np.float32))
        return cls(given.mean(0), given.std(0, correction=0).clamp_min(1e-6))

    def apply(self, states: States) -> Tensor:
        """Return states (n, D) less the mean, divided by the deviation."""
        return (torch.from_numpy(np.asarray(states, np.float32)) - self.mean) / self.deviation


class LinearProbe:
    """Weights (D, K) and biases (K,) over states that are standardised by the mean and deviation of the training."""

    def __init__(
        self, states: States, labels: Labels, classes: int, *, strength: float, standard: Standard | None = None
    ) -> None:
        """Train on states (n, D) with labels (n,): the mean cross-entropy and `strength` times the squared weights."""
        self.trained = len(labels)
        self.standard = standard or Standard.of(states)
        given, target = self.standard.apply(states), torch.from_numpy(labels)
        self.weights = torch.zeros(given.shape[1], classes, requires_grad=True)
        self.biases = torch.zeros(classes, requires_grad=True)

        def loss() -> Tensor:
            scores = given @ self.weights + self.biases
            return functional.cross_entropy(scores, target) + strength * self.weights.square().sum()

        _minimise(loss, [self.weights, self.biases])

    def predict(self, states: States) -> Labels:
        """Return the most probable label (n,) of states (n, D)."""
        found: Labels = self._scores(states).argmax(-1).numpy()
        return found

    def bits(self, states: States, labels: Labels) -> Floats:
        """Return what each label (n,) of states (n, D) costs, -log2 of its probability.

        The probability is that of the probe as one that saw each label once more: so a label costs no more than
        log2(trained + K), although the training may lack it.
        """
        given = self._scores(states).double().softmax(-1).numpy()[np.arange(len(labels)), labels]
        found: Floats = np.log2(self.trained + len(self.biases)) - np.log2(self.trained * given + 1)
        return found

    def _scores(self, states: States) -> Tensor:
        with torch.no_grad():
            return self.standard.apply(states) @ self.weights + self.biases


class MixedProbe:
    """A linear probe of a mix of layers, sum_l softmax(s)_l h_l, whose `shares` (L + 1,) are trained with it.

    Each number of each layer is standardised first: else the shares would undo the layers' scales. The mix is divided
    by its own size, as the paper's factor allows: a mix of layers is smaller than each of them and would need larger
    weights, so that their penalty alone would choose one layer.
    """

    def __init__(self, states: States, labels: Labels, classes: int, *, strength: float) -> None:
        """Train on states (L + 1, n, D) with labels (n,), beginning with equal shares."""
        self.standards = [Standard.of(one) for one in states]
        given, target = self._standardised(states), torch.from_numpy(labels)
        self.mix = torch.zeros(len(states), requires_grad=True)
        self.weights = torch.zeros(given.shape[-1], classes, requires_grad=True)
        self.biases = torch.zeros(classes, requires_grad=True)

        def loss() -> Tensor:
            mixed = self._mixed(given)
            scores = mixed / _size(mixed) @ self.weights + self.biases
            return functional.cross_entropy(scores, target) + strength * self.weights.square().sum()

        _minimise(loss, [self.mix, self.weights, self.biases])
        with torch.no_grad():
            self.size = _size(self._mixed(given))

    @property
    def shares(self) -> Floats:
        """Return the share (L + 1,) of each layer; they sum to 1."""
        found: Floats = self.mix.detach().double().softmax(-1).numpy()
        return found

    def predict(self, states: States) -> Labels:
        """Return the most probable label (n,) of states (L + 1, n, D)."""
        with torch.no_grad():
            mixed = self._mixed(self._standardised(states)) / self.size
            found: Labels = (mixed @ self.weights + self.biases).argmax(-1).numpy()
        return found

    def _standardised(self, states: States) -> Tensor:
        return torch.stack([one.apply(layer) for one, layer in zip(self.standards, states, strict=True)])

    def _mixed(self, given: Tensor) -> Tensor:
        layers, *shape = given.shape
        return (self.mix.softmax(-1) @ given.view(layers, -1)).view(shape)


def _size(mixed: Tensor) -> Tensor:
    return mixed.square().mean().clamp_min(1e-12).sqrt()  # a layer may be 0 everywhere


def _minimise(loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    """Move parameters to where a loss is least, by L-BFGS from where they are."""
    optimizer = torch.optim.LBFGS(parameters, max_iter=STEPS, tolerance_grad=GRADIENT, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        found = loss()
        found.backward()
        return found

    optimizer.step(closure)


def choose_strength(states: States, labels: Labels, classes: int) -> float:
    """Return the strength whose probe is right most often about every fifth state, of those trained on the others."""
    held = np.arange(len(labels)) % 5 == 4

    def right(strength: float) -> float:
        probe = LinearProbe(states[~held], labels[~held], classes, strength=strength)
        return float((probe.predict(states[held]) == labels[held]).mean())

    return max(STRENGTHS, key=right)


def codelength(states: States, labels: Labels, classes: int, *, strength: float) -> Floats:
    """Return the bits (n,) of labels (n,) in the online code, given states (n, D): uniform first, then by probes.

    Their sum is the length of the code. Each portion is coded by a probe that is trained on those before it. `strength`
    is that of a probe of all labels: a smaller portion weighs less beside the squared weights, as it does beside one
    prior.
    """
    standard = Standard.of(states)
    ends = portion_ends(len(labels))
    bits = [np.full(ends[0], math.log2(classes))]
    for begin, end in pairwise(ends):
        own = strength * len(labels) / begin
        probe = LinearProbe(states[:begin], labels[:begin], classes, strength=own, standard=standard)
        bits.append(probe.bits(states[begin:end], labels[begin:end]))
    return np.concatenate(bits)


def portion_ends(count: int) -> list[int]:
    """Return where the portions of so many labels end.

    >>> portion_ends(100)
    [1, 2, 4, 7, 13, 25, 50, 100]
    """
    return sorted({math.ceil(part * count) for part in PORTIONS})


def cumulative(
    states: tuple[States, States], labels: tuple[Labels, Labels], classes: int, strength: float
) -> tuple[NDArray[np.bool_], Floats]:
    """Return which labels a mix of the layers up to each one reads (L + 1, n), and the fractions of the last mix.

    `states` and `labels`: first those that train, then those that are scored. The last mix is that of all layers: its
    fractions (L + 1,) are those of the centre of gravity.
    """
    right = []
    for layers in range(1, len(states[0]) + 1):
        probe = MixedProbe(states[0][:layers], labels[0], classes, strength=strength)
        right.append(probe.predict(states[1][:layers]) == labels[1])
    return np.array(right), probe.shares


def expected_layer(scores: Floats) -> float:
    """Return sum_l l (score_l - score_(l-1)) / (score_L - score_0), NaN where no layer adds to the embeddings.

    Tenney et al. 2019, section 3.2; `scores` (L + 1,) are those of mixes of the layers up to each.

    >>> round(expected_layer(np.array([0.5, 0.7, 0.9, 0.9])), 3)
    1.5
    """
    gains = np.diff(scores)
    whole = float(scores[-1] - scores[0])
    return float(np.arange(1, len(scores)) @ gains) / whole if whole > 0 else math.nan


def expected_layer_interval(right: Floats, counts: Floats, seed: int) -> tuple[float, float]:
    """Return the 95% interval of the expected layer, by the bootstrap over texts.

    `right` (L + 1, T): how many items of each text the mix up to a layer reads; `counts` (T,): of how many. The probes
    stay as they are. Samples in which no layer adds to the embeddings are left out.
    """

    def expected(rows: NDArray[np.intp]) -> list[float]:
        return [expected_layer(right[:, rows].sum(axis=1) / counts[rows].sum())]

    return percentiles(bootstrap(expected, len(counts), seed=seed)[:, 0])


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
