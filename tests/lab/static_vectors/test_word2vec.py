"""word2vec's updates: gensim's for single predictions, a plain loop's for many, and its draws as distributions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from osbert_lab.static_vectors import word2vec
from osbert_lab.static_vectors.word2vec import Vectors, WindowStep

A, B = 0, 1
INPUTS = [[0.5, -0.25, 1], [-1, 0.75, 0.5]]
OUTPUTS = [[0.2, 0.4, -0.6], [0.3, -0.1, 0.8]]
GENSIM = {
    (word2vec.skip_gram, 1): (
        [[0.51197, -0.27088, 1.06453], [-0.99821, 0.80143, 0.39301]],
        [[0.07505, 0.4909, -0.58283], [0.37606, -0.15155, 0.83298]],
    ),
    (word2vec.skip_gram, 2): (
        [[0.50762, -0.28569, 1.08416], [-0.98311, 0.79619, 0.4332]],
        [[0.05902, 0.49942, -0.61659], [0.32743, -0.11415, 0.8558]],
    ),
    (word2vec.cbow, 1): (
        [[0.5169, -0.25563, 1.04507], [-0.9813, 0.79542, 0.43661]],
        [[0.09251, 0.48222, -0.54771], [0.31409, -0.10704, 0.82817]],
    ),
    (word2vec.cbow, 5): (
        [[0.50956, -0.28826, 1.0829], [-0.99729, 0.8006, 0.39516]],
        [[0.07502, 0.49067, -0.58468], [0.36396, -0.14448, 0.80293]],
    ),
}
"""The tables of gensim 4.4.0 by seed: Word2Vec(vector_size=3, window=1, negative=1, sample=0, alpha=.1, min_alpha=.1,
workers=1, shrink_windows=False) with these tables, trained once on the sentence a b a."""


def tabled(score: float) -> float:
    """Return the sigmoid as gensim looks it up: 1,000 values from -6 to 6, at 83 a unit rather than 83.3."""
    return float(1 / (1 + np.exp(-(int((score + 6) * 83) / 1000 * 2 - 1) * 6)))


def exact(score: float) -> float:
    return float(1 / (1 + np.exp(-score)))


def one_by_one(predictions: Sequence[tuple[list[int], int, int]], sigmoid: Callable[[float], float]) -> np.ndarray:
    """Return both tables after predictions (sources, target, noise word), each on the tables after the last."""
    inputs, outputs = np.array(INPUTS), np.array(OUTPUTS)
    for sources, target, noise in predictions:
        mean, error = inputs[sources].mean(0), np.zeros(3)
        for word, label in [(target, 1), *([(noise, 0)] if noise != target else [])]:
            gradient = 0.1 * (label - sigmoid(mean @ outputs[word]))
            error += gradient * outputs[word]
            outputs[word] += gradient * mean
        for source in sources:
            inputs[source] += error
    return np.stack([inputs, outputs])


def prediction(ids: Sequence[int], around: Sequence[int], pairs: Sequence[Sequence[int]]) -> WindowStep:
    return WindowStep(
        ids=torch.tensor([ids]), around=torch.tensor([around]), pairs=torch.tensor([pairs], dtype=torch.float32)
    )


@pytest.mark.parametrize(("learn", "seed"), GENSIM)
def test_single_predictions_are_gensims(learn, seed) -> None:
    """By its seed gensim draws the word to predict, and skips it, or the other one: one way is gensim's."""
    text, windows = [A, B, A], [(0, [1]), (1, [0, 2]), (2, [1])]
    if learn is word2vec.cbow:
        predicted = [([text[near] for near in around], text[centre]) for centre, around in windows]
    else:
        predicted = [([text[near]], text[centre]) for centre, around in windows for near in around]
    ways = itertools.product([A, B], repeat=len(predicted))
    every = [[(*one, draw) for one, draw in zip(predicted, draws)] for draws in ways]
    (gensims,) = [one for one in every if np.abs(one_by_one(one, tabled) - GENSIM[learn, seed]).max() < 1e-5]
    vectors = Vectors(inputs=torch.tensor(INPUTS), outputs=torch.tensor(OUTPUTS))
    for sources, target, noise in gensims:
        if learn is word2vec.cbow:
            step = prediction([target], sources, [[1] * len(sources)])
        else:
            step = prediction(sources, [target], [[1]])
        learn(vectors, step, torch.tensor([noise]), negative=1, rate=0.1)
    found = torch.stack([vectors.inputs, vectors.outputs]).numpy()
    np.testing.assert_allclose(found, one_by_one(gensims, exact), atol=1e-6)


def plain(learn, vectors: Vectors, step: WindowStep, noise: Tensor, *, negative: float, rate: float) -> Vectors:
    """Return the tables after a step, pair by pair, each with the tables as they were before it."""
    inputs, outputs = vectors.inputs.clone(), vectors.outputs.clone()
    old_in, old_out, weight = vectors.inputs, vectors.outputs, negative / len(noise)
    for row, place in itertools.product(range(len(step.ids)), range(step.ids.shape[1])):
        word = int(step.ids[row, place])
        paired = [int(word) for word in step.around[row][step.pairs[row, place] > 0]]
        if learn is word2vec.cbow:
            predictions = [(paired, word)] if paired else []
        else:
            predictions = [([word], other) for other in paired]
        for sources, target in predictions:
            mean = torch.stack([old_in[source] for source in sources]).mean(0)
            error = torch.zeros_like(mean)
            for other, label, count in [(target, 1, 1.0), *((int(one), 0, weight) for one in noise)]:
                if label or other != target:
                    gradient = count * (label - torch.sigmoid(mean @ old_out[other]))
                    error += gradient * old_out[other]
                    outputs[other] += rate * gradient * mean
            for source in sources:
                inputs[source] += rate * error
    return Vectors(inputs=inputs, outputs=outputs)


@pytest.mark.parametrize("learn", [word2vec.skip_gram, word2vec.cbow])
def test_a_step_is_the_sum_over_its_pairs(learn) -> None:
    rng, generator = np.random.default_rng(1), torch.Generator().manual_seed(1)
    ids, texts = rng.integers(0, 9, 45), np.repeat([0, 1, 2], [20, 1, 24])
    centred = learn is word2vec.cbow
    (step,) = word2vec.steps(ids, texts, window=3, centred=centred, rng=rng)
    vectors = Vectors(inputs=torch.randn(9, 4, generator=generator), outputs=torch.randn(9, 4, generator=generator))
    noise = torch.from_numpy(rng.integers(0, 9, 6))
    expected = plain(learn, vectors, step, noise, negative=5, rate=0.1)
    learn(vectors, step, noise, negative=5, rate=0.1)
    torch.testing.assert_close(vectors.inputs, expected.inputs)
    torch.testing.assert_close(vectors.outputs, expected.outputs)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("words", [1, 32, 300])
def test_pairs_are_those_of_the_windows(words: int, centred: bool) -> None:
    ids, texts = np.arange(words), np.arange(words) // 40
    widths = np.random.default_rng(3).integers(1, 6, words)
    expected = {
        (one, other)
        for one, other in itertools.product(range(words), repeat=2)
        if 0 < abs(one - other) <= widths[one if centred else other] and texts[one] == texts[other]
    }
    found = set()
    for step in word2vec.steps(ids, texts, window=5, centred=centred, rng=np.random.default_rng(3)):
        for row, one, other in step.pairs.nonzero().tolist():
            found.add((int(step.ids[row, one]), int(step.around[row, other])))
    assert found == expected


def test_noise_and_kept_words_have_their_frequencies() -> None:
    counts, rng = np.array([0, 3, 50, 400, 9000]), np.random.default_rng(0)
    bounds = word2vec.noise_bounds(counts)
    drawn = np.bincount(np.searchsorted(bounds, rng.random(40_000), side="right"), minlength=5)
    power = counts[1:] ** 0.75
    assert not drawn[0] and chisquare(drawn[1:], 40_000 * power / power.sum()).pvalue > 0.01
    rates, shares = word2vec.keep_rates(counts, 1e-2), counts / counts.sum()
    expected = [0, 1, 1] + [float((np.sqrt(share / 1e-2) + 1) * 1e-2 / share) for share in shares[3:]]
    np.testing.assert_allclose(rates, np.minimum(1, expected))
    assert word2vec.keep_rates(counts, 0).tolist() == [0, 1, 1, 1, 1]
