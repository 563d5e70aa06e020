"""The linear probe: labels that lie in the states are found, the loss's gradient is 0, control labels are of types."""

from __future__ import annotations

import numpy as np
import pytest

from osbert.analysis.probe import LinearProbe, choose_strength, control_labels

RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(300, 6))
LABELS = (STATES @ RNG.normal(size=(6, 3))).argmax(1)


def test_labels_that_are_linear_in_the_states_are_found() -> None:
    probe = LinearProbe(STATES[:200] * 40 + 7, LABELS[:200], 3, strength=1e-4)
    assert (probe.predict(STATES[200:] * 40 + 7) == LABELS[200:]).mean() > 0.9


def test_the_probe_is_at_the_minimum_of_its_loss() -> None:
    probe = LinearProbe(STATES, LABELS, 3, strength=1e-2)
    given = (STATES - STATES.mean(0)) / STATES.std(0)
    scores = given @ probe.weights.detach().double().numpy() + probe.biases.detach().double().numpy()
    probabilities = np.exp(scores - scores.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    wrong = probabilities - np.eye(3)[LABELS]
    gradient = given.T @ wrong / len(given) + 2e-2 * probe.weights.detach().numpy()
    assert np.abs(gradient).max() < 1e-3 and np.abs(wrong.mean(0)).max() < 1e-3


def test_noise_is_held_down_by_the_strength_that_is_chosen() -> None:
    assert choose_strength(RNG.normal(size=(60, 50)), RNG.integers(0, 2, 60), 2) in (1e-4, 1e-3, 1e-2)


def test_a_type_has_one_control_label_drawn_from_the_probabilities() -> None:
    words = [f"w{number}" for number in range(2000)]
    found = control_labels([*words, *words], np.array([0.7, 0.0, 0.3]), seed=0)
    assert (found[:2000] == found[2000:]).all() and np.mean(found == 0) == pytest.approx(0.7, abs=0.04)
    assert not (found == 1).any() and (found[:9] == control_labels(words[:9], np.array([0.7, 0.0, 0.3]), 0)).all()
    assert (found[:2000] != control_labels(words, np.array([0.7, 0.0, 0.3]), 1)).any()
