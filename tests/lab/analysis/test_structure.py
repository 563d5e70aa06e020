"""The structural probe: on vectors that are a tree it reads every arc, and its scores are those of known answers."""

from __future__ import annotations

import numpy as np
import pytest

from osbert_lab.analysis.structure import (
    MeasuredTree,
    StructuralProbe,
    control_heads,
    distance_bits,
    rank_correlation,
    right_arcs,
    spanning_tree,
    tree_codelength,
    tree_distances,
)

WIDTH = 24


def random_heads(rng: np.random.Generator, words: int) -> list[int]:
    order = rng.permutation(words)
    heads = [-1] * words
    for place, word in enumerate(order[1:], 1):
        heads[word] = int(order[rng.integers(place)])
    return heads


def vectors(heads: list[int], rotation: np.ndarray) -> np.ndarray:
    """Each arc is an axis: the squared distance of two words is the number of arcs between them."""
    states = np.zeros((len(heads), WIDTH))
    for word in range(len(heads)):
        above = word
        while above >= 0:
            states[word, above] = heads[above] >= 0
            above = heads[above]
    return states @ rotation


@pytest.fixture(scope="module")
def rotation() -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(1).normal(size=(WIDTH, WIDTH)))[0]


def test_vectors_that_are_a_tree_give_every_arc(rotation: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    heads = [random_heads(rng, int(rng.integers(2, 9))) for _ in range(130)]
    trees = [MeasuredTree(vectors(one, rotation), tree_distances(one)) for one in heads]
    for tree in trees:
        apart = np.square(tree.states[:, None] - tree.states[None]).sum(-1)
        assert np.allclose(apart, tree.distances)
    probe = StructuralProbe(trees[:100], seed=0)
    scores = [
        right_arcs(probe.distances(tree.states), own, [True] * len(own))
        for tree, own in zip(trees[100:], heads[100:], strict=True)
    ]
    assert sum(right for right, _ in scores) == sum(count for _, count in scores)
    apart = [np.round(probe.distances(tree.states)) for tree in trees[100:]]
    assert np.nanmean([rank_correlation(one, tree.distances) for one, tree in zip(apart, trees[100:])]) > 0.97


def test_a_mix_looks_at_the_layer_that_is_a_tree_and_its_code_is_short_there(rotation: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    heads = [random_heads(rng, int(rng.integers(3, 9))) for _ in range(150)]
    noise = [rng.normal(size=(len(one), WIDTH)) for one in heads]
    layers = [np.stack([below, vectors(one, rotation)]) for one, below in zip(heads, noise, strict=True)]
    apart = [tree_distances(one) for one in heads]
    assert StructuralProbe([*map(MeasuredTree, layers, apart)], seed=0).layer_weights[1] > 0.8
    below, above = (
        tree_codelength([MeasuredTree(states[at], far) for states, far in zip(layers, apart)], seed=0) for at in (0, 1)
    )
    pairs = [(len(one), len(one) * (len(one) - 1) // 2) for one in heads]
    assert above[1].tolist() == below[1].tolist() == pytest.approx([n * np.log2(words - 1) for words, n in pairs])
    assert above[2].tolist() == [count for _, count in pairs] and above[0].sum() < 0.85 * below[0].sum()


def test_the_code_of_a_distance_is_one_of_probabilities() -> None:
    found = np.abs(np.random.default_rng(0).normal(3, 2, size=(5, 5)))
    bits = [distance_bits(found, np.full((5, 5), float(far)), 0.7) for far in range(1, 5)]
    assert np.allclose(sum(2**-one for one in bits), 1)


def test_the_control_tree_is_one_and_depends_on_the_types_of_words() -> None:
    words = [f"w{number % 7}" for number in range(20)]
    heads = control_heads(words, [number > 1 for number in range(20)], seed=3)
    assert heads[2] == -1 and heads[19] == 2 and np.isfinite(tree_distances(heads)).all()
    sides = {word: {head for other, head in zip(words[3:-1], heads[3:-1]) if other == word} for word in words}
    assert all(len(one) == 1 and one < {2, 19} for one in sides.values()) and len(set.union(*sides.values())) == 2
    assert control_heads(["a", "b"], [False, False], seed=0)[0] == -1


def test_distances_of_a_tree_are_those_of_a_search_in_breadth() -> None:
    heads = random_heads(np.random.default_rng(3), 30)
    near = np.zeros((30, 30))
    for word, head in enumerate(heads):
        if head >= 0:
            near[word, head] = near[head, word] = 1
    reached, apart = np.eye(30), np.where(np.eye(30), 0, np.inf)
    for steps in range(1, 30):
        reached = reached @ (near + np.eye(30)) > 0
        apart = np.where(reached & np.isinf(apart), steps, apart)
        reached = reached.astype(float)
    assert (tree_distances(heads) == apart).all()


def test_arcs_of_words_that_do_not_count_are_left_out() -> None:
    heads = [1, -1, 1, 2]
    assert right_arcs(tree_distances(heads), heads, [True] * 4) == (3, 3)
    assert right_arcs(tree_distances(heads), heads, [True, True, True, False]) == (2, 2)
    line = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    assert right_arcs(line, [2, 2, -1, 2], [True] * 4) == (2, 3)
    assert right_arcs(line, heads, [True, False, False, False]) == (0, 0)
    assert spanning_tree(line) == {(0, 1), (1, 2), (2, 3)}


def test_rank_correlation_is_of_rows_and_ties_share_their_rank() -> None:
    one = np.array([[0, 1, 2, 3]] * 4, np.float32)
    assert rank_correlation(one, one * 7) == 1 and rank_correlation(one, -one) == -1
    assert rank_correlation(np.array([[0, 1, 1, 2]]), np.array([[0, 1, 2, 3]])) == pytest.approx(0.9487, abs=1e-4)
    assert np.isnan(rank_correlation(np.zeros((2, 2)), one[:2, :2]))
