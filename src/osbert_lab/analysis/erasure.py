"""LEACE, least-squares concept erasure in closed form: after it no linear probe can read a label from the states.

Belrose et al. 2023, theorem 4.3: r(x) = x - W+ P W (x - E[x]), where W = Cov(x)^(-1/2), W+ is its pseudoinverse and P
projects onto the columns of W Cov(x, z). Then Cov(r(x), z) = 0, and of all maps with that property r changes x least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert_lab.analysis.figures import Floats

FLAT = 1e-6
"""Relative tolerance of a rank: directions below this part of the largest variance (or covariance) count as 0."""


@dataclass(frozen=True)
class Eraser:
    """The map x - (x - mean) R S with `read` R (D, r) and `write` S (r, D): it removes r directions."""

    mean: Floats
    read: Floats
    write: Floats

    @property
    def rank(self) -> int:
        """Return the number r of removed directions."""
        return self.read.shape[1]

    def apply(self, states: Tensor) -> Tensor:
        """Return states (n, D) after the erasure, on the same device and of the same type."""
        mean, read, write = (torch.from_numpy(part).to(states) for part in (self.mean, self.read, self.write))
        return states - (states - mean) @ read @ write


class LabelledMoments:
    """Running sums over states (n, D) and labels (n,): the moments that an eraser needs, in float64."""

    def __init__(self, width: int, classes: int) -> None:
        """Start with empty sums for states of this width and this number of classes."""
        self.count = 0
        self.sums = np.zeros(width)
        self.squares = np.zeros((width, width))
        self.labels = np.zeros(classes)
        self.products = np.zeros((width, classes))

    def add(self, states: NDArray[np.floating], labels: NDArray[np.integer]) -> None:
        """Add states (n, D) with labels (n,) in 0 to K - 1."""
        given = np.asarray(states, np.float64)
        one_hot = np.eye(len(self.labels))[labels]
        self.count += len(labels)
        self.sums += given.sum(0)
        self.squares += given.T @ given
        self.labels += one_hot.sum(0)
        self.products += given.T @ one_hot

    def eraser(self) -> Eraser:
        """Return the eraser of the labels. Its rank is that of their covariance with the states, at most K - 1."""
        whitener, colourer = self._square_roots()
        # Cov(x, z) (D, K) of the states and the one-hot labels.
        crossed = self.products / self.count - np.outer(self.sums, self.labels) / self.count**2
        # The left singular vectors of W Cov(x, z) with a value above 0 span its columns: P = kept kept^T.
        directions, sizes, _ = np.linalg.svd(whitener @ crossed, full_matrices=False)
        basis = directions[:, sizes > FLAT * max(float(sizes.max(initial=0)), FLAT)]
        return Eraser(self.sums / self.count, whitener @ basis, basis.T @ colourer)

    def random_eraser(self, rank: int, rng: np.random.Generator) -> Eraser:
        """Return an eraser of `rank` random directions, uniform in the whitened space of the states."""
        whitener, colourer = self._square_roots()
        # W+ W is the projection onto the directions that vary: Gaussian vectors in it have no preferred direction.
        drawn = whitener @ colourer @ rng.normal(size=(len(self.sums), rank))
        basis = np.linalg.qr(drawn)[0][:, :rank]
        return Eraser(self.sums / self.count, whitener @ basis, basis.T @ colourer)

    def _square_roots(self) -> tuple[Floats, Floats]:
        """Return Cov(x)^(-1/2) and Cov(x)^(1/2) (D, D), both restricted to the directions in which states vary."""
        mean = self.sums / self.count
        # eigh returns ascending eigenvalues: the last one is the largest.
        values, vectors = np.linalg.eigh(self.squares / self.count - np.outer(mean, mean))
        varies = values > FLAT * values[-1]
        roots, vectors = np.sqrt(values[varies]), vectors[:, varies]
        return vectors / roots @ vectors.T, vectors * roots @ vectors.T
