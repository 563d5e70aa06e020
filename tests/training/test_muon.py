"""Muon beside a restatement in double precision and beside torch's own, and that it is saved and put back whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from osbert.training import tensors
from osbert.training.distributed import Parallel
from osbert.training.muon import CURVES, orthogonal
from osbert.training.optimizer import OptimizerSettings

SHAPES = [(6, 6), (4, 9), (12, 5)]


class Toy(nn.Module):
    """A table, and blocks with a matrix of each shape and one that holds three."""

    parts = {"blocks.3.weight": 3}

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(7, 4)
        self.blocks = nn.ModuleList(nn.Linear(columns, rows) for rows, columns in [*SHAPES, (15, 5)])


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize("iterations", CURVES)
@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_come_to_about_one_and_directions_stay(shape, iterations) -> None:
    torch.manual_seed(1)
    matrices = torch.randn(2, *shape)
    for before, after in zip(matrices, orthogonal(matrices, iterations)):
        left, _, right = torch.linalg.svd(before, full_matrices=False)
        inner = left.T @ after @ right.T
        values = inner.diagonal()
        assert values.min() > 0.3 and values.max() < 1.3
        torch.testing.assert_close(inner, values.diag(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("iterations, least, low, high", [(3, 0.0095, 0.69, 1.28), (5, 0.0016, 0.68, 1.21)])
def test_where_the_curves_bring_singular_values(iterations, least, low, high) -> None:
    values = torch.logspace(math.log10(least), 0, 10_000, dtype=torch.float64)
    for a, b, c in CURVES[iterations]:
        values = a * values + b * values**3 + c * values**5
    assert values.min() >= low and values.max() <= high


def test_a_matrix_of_zeros_stays() -> None:
    assert torch.equal(orthogonal(torch.zeros(1, 3, 3)), torch.zeros(1, 3, 3))


def test_under_autocast_it_iterates_in_bf16() -> None:
    torch.manual_seed(1)
    matrices = torch.randn(2, 6, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        coarse = orthogonal(matrices)
    fine = orthogonal(matrices)
    assert coarse.dtype == torch.float32
    assert not torch.equal(coarse, fine)
    torch.testing.assert_close(coarse, fine, rtol=0, atol=0.03)


def restated(weight: np.ndarray, gradients: list[np.ndarray], rate: float, decay: float) -> np.ndarray:
    """Jordan's Muon in double precision, a matrix at a time."""
    mean = np.zeros_like(weight)
    for gradient in gradients:
        mean = 0.95 * mean + 0.05 * gradient
        x = 0.05 * gradient + 0.95 * mean
        x = x / np.linalg.norm(x)
        for _ in range(5):
            x = 3.4445 * x - 4.7750 * x @ x.T @ x + 2.0315 * x @ x.T @ x @ x.T @ x
        weight = weight - rate * decay * weight - rate * max(1, x.shape[0] / x.shape[1]) ** 0.5 * x
    return weight


def test_steps_are_those_of_the_definition() -> None:
    model = Toy()
    before = {name: weight.detach().double().numpy() for name, weight in model.named_parameters()}
    optimizer = OptimizerSettings(method="muon", muon_rate=0.05, weight_decay=0.2).build(model)
    seen: dict[str, list[np.ndarray]] = {name: [] for name in before}
    for step in range(4):
        trained(model, optimizer, range(step, step + 1))
        for name, weight in model.named_parameters():
            seen[name].append(weight.grad.double().numpy())
    for place, parts in enumerate([1, 1, 1, 3]):
        name = f"blocks.{place}.weight"
        expected = [
            restated(part, [np.split(gradient, parts)[number] for gradient in seen[name]], 0.05, 0.2)
            for number, part in enumerate(np.split(before[name], parts))
        ]
        found = model.get_parameter(name).detach().numpy()
        np.testing.assert_allclose(found, np.concatenate(expected), rtol=0, atol=1e-4)


def test_steps_are_those_of_torch_but_for_its_precision() -> None:
    ours, theirs = Toy(), Toy()
    optimizer = OptimizerSettings(method="muon", weight_decay=0.1).build(ours)
    matrices = [theirs.blocks[place].weight for place in range(3)]
    trained(ours, optimizer, range(3))
    trained(theirs, torch.optim.Muon(matrices, lr=0.02, weight_decay=0.1, momentum=0.95), range(3))
    for place, matrix in enumerate(matrices):
        moved = (matrix - Toy().blocks[place].weight).norm()
        assert (ours.blocks[place].weight - matrix).norm() < 0.03 * moved  # theirs iterates in bfloat16


def test_all_other_weights_move_as_with_adamw() -> None:
    one, other = Toy(), Toy()
    trained(one, OptimizerSettings(method="muon").build(one), range(3))
    trained(other, OptimizerSettings().build(other), range(3))
    for name, weight in one.named_parameters():
        inside = name.startswith("blocks.") and name.endswith("weight")
        assert torch.equal(weight, other.get_parameter(name)) != inside, name


@pytest.mark.parametrize("settings", [{"method": "muon"}, {"bias_correction": False}], ids=str)
def test_it_goes_on_bit_for_bit(settings) -> None:
    whole, first, second = Toy(), Toy(), Toy()
    chosen = OptimizerSettings(**settings)
    trained(whole, chosen.build(whole), range(6))
    optimizer = chosen.build(first)
    trained(first, optimizer, range(3))
    again = chosen.build(second)
    moments = {name: moment.clone() for name, moment in tensors.moments(first, Parallel(), optimizer).items()}
    tensors.put_weights(second, Parallel(), tensors.weights(first, Parallel()))
    tensors.put_moments(second, Parallel(), again, moments)
    trained(second, again, range(3, 6))
    for name, weight in whole.named_parameters():
        assert torch.equal(weight, second.get_parameter(name)), name
