"""Chains: likelihood, best path and shares against all paths written out; gradients; steps that are ruled out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.models.heads.chain import Chain, forbidden
from osbert.models.heads.tagging import ChainField
from osbert.reading.tagged.schemes import follows, label_names, read_tags, write_tags

LABELS = label_names(["A"], "bio")
K = len(LABELS)
LENGTHS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def field(seed: int, *, legal: bool) -> ChainField:
    bans = forbidden(LABELS, lambda before, tag: follows(before, tag, "bio")) if legal else Chain.free(K)
    made = ChainField(bans).double()
    rng = torch.Generator().manual_seed(seed)
    for part in made.parameters():
        part.data.normal_(generator=rng)
    return made


def path_scores(chain: Chain, scores: np.ndarray) -> dict[tuple[int, ...], float]:
    """Return the score of every path, written out."""
    found = {}
    for path in itertools.product(range(K), repeat=len(scores)):
        total = chain.first[path[0]] + chain.last[path[-1]] + sum(scores[place, one] for place, one in enumerate(path))
        found[path] = total + sum(chain.steps[one, other] for one, other in itertools.pairwise(path))
    return found


@settings(max_examples=30)
@given(st.integers(0, 99), LENGTHS, st.booleans())
def test_likelihood_path_and_shares_are_those_of_all_paths(seed: int, lengths: list[int], legal: bool) -> None:
    crf = field(seed, legal=legal)
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(sum(lengths), K))
    labels = rng.integers(0, K, size=sum(lengths))
    found = crf.log_likelihood(torch.from_numpy(scores), torch.from_numpy(labels), lengths).tolist()
    start = 0
    for length, likelihood in zip(lengths, found, strict=True):
        part = scores[start : start + length]
        every = path_scores(crf.chain(), part)
        whole = np.logaddexp.reduce(list(every.values()))
        assert likelihood == pytest.approx(every[tuple(labels[start : start + length].tolist())] - whole)
        best = crf.chain().best(part)
        assert tuple(best.tolist()) == max(every, key=every.__getitem__)
        parts = [(first, last) for first in range(length) for last in range(first + 1, length + 1)]
        for (first, last), share in zip(parts, crf.chain().probabilities(part, best, parts), strict=True):
            wanted = [score for path, score in every.items() if (best[first:last] == path[first:last]).all()]
            assert share == pytest.approx(np.exp(np.logaddexp.reduce(wanted) - whole))
        start += length


def test_gradients_are_right() -> None:
    crf = field(3, legal=False)
    scores = torch.randn(6, K, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 2, 1, 1, 0, 2])

    def likelihood(scores: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(_Likelihood(crf), dict(zip(names, parts)), (scores, labels))

    names = [f"crf.{name}" for name, _ in crf.named_parameters()]
    parts = [part.detach().requires_grad_() for part in crf.parameters()]
    assert torch.autograd.gradcheck(likelihood, (scores, *parts))


class _Likelihood(torch.nn.Module):
    def __init__(self, crf: ChainField) -> None:
        super().__init__()
        self.crf = crf

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.crf.log_likelihood(scores, labels, (1, 3, 2))


def test_no_chain_has_gradients_of_0() -> None:
    crf = field(0, legal=True)
    crf.log_likelihood(torch.zeros(0, K).double(), torch.zeros(0).long(), ()).sum().backward()
    assert all(weight.grad is not None and not weight.grad.any() for weight in crf.parameters())


def test_a_free_chain_chooses_each_label_by_itself() -> None:
    scores = np.random.default_rng(0).normal(size=(9, K))
    free = Chain.free(K)
    path = free.best(scores)
    assert (path == scores.argmax(axis=1)).all()
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert free.probabilities(scores, path, [(2, 5)]) == pytest.approx([shares[2:5].max(axis=1).prod()])
    assert free.probabilities(scores, path, []) == []


@given(st.integers(0, 999), st.integers(1, 9), st.sampled_from(["bio", "bioes"]))
def test_a_legal_chain_spells_nothing_illegal(seed: int, count: int, scheme: str) -> None:
    labels = label_names(["A", "B"], scheme)
    chain = Chain.free(len(labels)).legal(labels, lambda before, tag: follows(before, tag, scheme))
    scores = np.random.default_rng(seed).normal(scale=5, size=(count, len(labels)))
    tags = [labels[place] for place in chain.best(scores)]
    assert write_tags(read_tags(tags), count, scheme) == tags


def test_what_is_ruled_out_gets_no_gradient() -> None:
    crf = field(0, legal=True)
    crf.log_likelihood(torch.randn(4, K).double(), torch.tensor([0, 1, 2, 0]), (4,)).sum().backward()
    outside, inside = LABELS.index("O"), LABELS.index("I-A")
    assert crf.steps.grad is not None and crf.first.grad is not None
    assert crf.steps.grad[outside, inside] == 0 and crf.first.grad[inside] == 0
    assert set(dict(crf.state_dict())) == {"first", "steps", "last"}
