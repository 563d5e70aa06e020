"""The fused cross-entropy equals torch's plain one, in values, hits and gradients, however the rows are parted."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from osbert.models.fast import cross_entropy
from osbert.models.fast.cross_entropy import linear_cross_entropy

VOCABULARY, WIDTH = 11, 5


def draw(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@given(rows=st.integers(0, 9), most=st.integers(1, 5), weighted=st.booleans(), seed=st.integers(0, 99))
def test_values_hits_and_gradients_equal_the_plain_formula(rows: int, most: int, weighted: bool, seed: int) -> None:
    columns = draw(rows, seed)
    labels = torch.randint(0, VOCABULARY, (rows,))
    weights = torch.rand(rows) if weighted else None
    scores = functional.linear(*columns)
    losses = functional.cross_entropy(scores, labels, reduction="none")
    plain = (losses if weights is None else losses * weights.double()).sum()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cross_entropy.SCORES, "cpu", most * VOCABULARY)
        total, hits = linear_cross_entropy(*columns, labels, weights)
    torch.testing.assert_close(total, plain)
    assert hits == (scores.argmax(dim=1) == labels).sum()
    for one, other in zip(torch.autograd.grad(total / 7, columns), torch.autograd.grad(plain / 7, columns)):
        torch.testing.assert_close(one, other)


def test_without_gradients_none_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    learning = []

    class Spy(cross_entropy._Sums):
        def __init__(self, *given, **more) -> None:
            learning.append(more["learning"])
            super().__init__(*given, **more)

    monkeypatch.setattr(cross_entropy, "_Sums", Spy)
    columns, labels = draw(3, 0), torch.randint(0, VOCABULARY, (3,))
    linear_cross_entropy(*columns, labels)
    with torch.no_grad():
        linear_cross_entropy(*columns, labels)
    assert learning == [True, False]


def test_of_equal_scores_the_first_is_the_prediction() -> None:
    states, weight, bias = torch.ones(3, 2), torch.zeros(4, 2), torch.tensor([0.0, 1.0, 1.0, 0.0])
    assert linear_cross_entropy(states, weight, bias, torch.tensor([1, 2, 3]))[1] == 1


def test_a_hopeless_label_has_a_finite_loss_and_an_infinite_score_none() -> None:
    states, weight = torch.tensor([[1000.0]]), torch.tensor([[1.0], [-1.0]])
    assert linear_cross_entropy(states, weight, torch.zeros(2), torch.tensor([1]))[0] == 2000
    total, hits = linear_cross_entropy(states * torch.nan, weight, torch.zeros(2), torch.tensor([1]))
    assert total.isnan() and hits == 0


@pytest.mark.parametrize(("most", "multiple"), [(2**23, 1), (100, 1), (100, 8)])
def test_bf16_is_that_of_the_plain_formula_and_the_loss_is_float32(
    monkeypatch: pytest.MonkeyPatch, most: int, multiple: int
) -> None:
    monkeypatch.setitem(cross_entropy.WIDTHS, "cpu", multiple)
    monkeypatch.setitem(cross_entropy.SCORES, "cpu", most)
    monkeypatch.setattr(cross_entropy, "ROWS", 3)  # of eight rows the last part has two
    columns, labels = draw(8, 0, torch.float32), torch.arange(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = functional.linear(columns[0], columns[1]).float() + columns[2]
        plain = functional.cross_entropy(scores, labels, reduction="sum")
        total, _ = linear_cross_entropy(*columns, labels)
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, plain)
    for one, other in zip(torch.autograd.grad(total, columns), torch.autograd.grad(plain, columns)):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


def test_its_gradient_is_taken_once() -> None:
    columns = draw(3, 0)
    total, _ = linear_cross_entropy(*columns, torch.arange(3))
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once only"):
        total.backward()


def test_without_gradients_none_are_made() -> None:
    columns = draw(3, 0)
    with torch.no_grad():
        total, _ = linear_cross_entropy(*columns, torch.arange(3))
    assert not total.requires_grad
