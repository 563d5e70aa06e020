"""The linear probe: labels that lie in the states are found, the loss's gradient is 0, control labels are of types."""

from __future__ import annotations

import math

import numpy as np
import pytest

from osbert_lab.analysis.probe import (
    LinearProbe,
    MixedProbe,
    choose_strength,
    codelength,
    compute_expected_layer,
    control_labels,
    cumulative,
)

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


def test_labels_that_lie_in_the_states_cost_few_bits_and_noise_costs_as_many_as_guessing() -> None:
    easy = codelength(STATES, LABELS, 3, strength=1e-4).sum()
    noise = codelength(RNG.normal(size=STATES.shape), LABELS, 3, strength=1e-2).sum()
    uniform = len(LABELS) * math.log2(3)
    assert easy < 0.6 * uniform < 0.9 * uniform < noise < 1.3 * uniform


def test_a_label_that_training_lacks_costs_no_more_than_one_that_it_had_once() -> None:
    probe = LinearProbe(STATES, np.zeros(300, np.int64), 2, strength=1e-4)
    assert probe.bits(STATES[:9], np.ones(9, np.int64)) == pytest.approx(np.log2(302), abs=0.1)
    assert probe.bits(STATES[:9], np.zeros(9, np.int64)) == pytest.approx(np.log2(302 / 301), abs=0.01)


def test_a_mix_of_layers_turns_to_the_one_that_holds_the_labels_whatever_its_scale() -> None:
    layers = np.stack([9 * RNG.normal(size=STATES.shape), 9 * RNG.normal(size=STATES.shape), STATES / 9])
    probe = MixedProbe(layers, LABELS, 3, strength=1e-3)
    assert probe.layer_weights.sum() == pytest.approx(1) and probe.layer_weights[2] > 0.8
    assert (probe.predict(layers) == LABELS).mean() > 0.9
    right, shares = cumulative((layers[:, :200], layers[:, 200:]), (LABELS[:200], LABELS[200:]), 3, 1e-2)
    scores = right.mean(axis=1)
    assert shares == pytest.approx(MixedProbe(layers[:, :200], LABELS[:200], 3, strength=1e-2).layer_weights)
    assert compute_expected_layer(scores) == pytest.approx(2, abs=0.5) and math.isnan(
        compute_expected_layer(scores[::-1])
    )


def test_layers_that_hold_the_labels_alike_share_the_mix_whatever_the_penalty() -> None:
    layers = np.stack([STATES + 3 * RNG.normal(size=STATES.shape) for _ in range(2)])
    for strength in (1e-3, 1e-1):
        shares = MixedProbe(layers, LABELS, 3, strength=strength).layer_weights
        assert 0.3 < shares[0] < 0.7, strength
    assert (MixedProbe(np.zeros((1, 300, 4)), LABELS[:300], 3, strength=1e-3).predict(np.zeros((1, 9, 4))) >= 0).all()
