"""LEACE: afterwards a fresh probe is at the majority, states move little, and what is no label stays readable."""

from __future__ import annotations

import numpy as np
import torch

from osbert_lab.analysis.erasure import LabelledMoments
from osbert_lab.analysis.probe import LinearProbe

RNG = np.random.default_rng(0)
LABELS = RNG.choice(3, size=1500, p=[0.5, 0.3, 0.2])
OTHERS = RNG.integers(0, 2, 1500)
STATES = RNG.normal(size=(1500, 12)) @ RNG.normal(size=(12, 12))
STATES[:, 3:6] += 12 * np.eye(3)[LABELS]
STATES[:, 0] += 30 * OTHERS


def moments() -> LabelledMoments:
    found = LabelledMoments(12, 3)
    found.add(STATES[:400], LABELS[:400])
    found.add(STATES[400:], LABELS[400:])
    return found


def right(states: np.ndarray, labels: np.ndarray) -> float:
    probe = LinearProbe(states, labels, 3, strength=1e-4)
    return float((probe.predict(states) == labels).mean())


def test_after_erasure_a_fresh_probe_is_at_the_majority() -> None:
    eraser = moments().eraser()
    erased = eraser.apply(torch.from_numpy(STATES)).numpy()
    assert right(STATES, LABELS) > 0.9 and abs(right(erased, LABELS) - (LABELS == 0).mean()) < 0.01
    assert eraser.rank == 2 and right(erased, OTHERS) > 0.9
    apart = (erased - erased.mean(0)).T @ np.eye(3)[LABELS]
    assert np.abs(apart).max() < 1e-6 * len(LABELS)


def test_random_directions_of_the_same_rank_leave_the_label() -> None:
    eraser = moments().random_eraser(2, np.random.default_rng(0))
    erased = eraser.apply(torch.from_numpy(STATES)).numpy()
    assert np.linalg.matrix_rank(erased - erased.mean(0), tol=1e-6) == 10 and right(erased, LABELS) > 0.8


def test_states_that_do_not_vary_in_a_direction_and_labels_that_lie_nowhere_are_no_obstacle() -> None:
    flat = STATES.copy()
    flat[:, 7:] = 1
    found = LabelledMoments(12, 3)
    found.add(flat, LABELS)
    erased = found.eraser().apply(torch.from_numpy(flat)).numpy()
    assert np.isfinite(erased).all() and abs(right(erased, LABELS) - (LABELS == 0).mean()) < 0.01
    alone = LabelledMoments(12, 1)
    alone.add(STATES, np.zeros(1500, int))
    assert alone.eraser().rank == 0
