"""The schedule's shape, and that every setting of the optimiser is obeyed."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.training import adamw
from osbert.training.optimizer import OptimizerSettings, limit, rate_factor

SHAPES = st.sampled_from(["linear", "cosine", "constant", "trapezoid"])


def test_linear_by_hand() -> None:
    shares = [rate_factor(step, steps=10, warmup=0.2, schedule="linear") for step in range(10)]
    assert shares == pytest.approx([0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])


def test_cosine_and_constant_by_hand() -> None:
    assert rate_factor(5, steps=10, warmup=0.0, schedule="cosine") == pytest.approx(0.5)
    assert rate_factor(9, steps=10, warmup=0.1, schedule="constant") == 1.0


def test_a_trapezoid_falls_in_its_last_steps_alone() -> None:
    shares = [rate_factor(step, steps=10, warmup=0.2, schedule="trapezoid", decay=0.3) for step in range(10)]
    assert shares == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.5, 1 - 0.5**0.5, 1 - 0.75**0.5])


def test_the_published_warm_up() -> None:
    settings = OptimizerSettings()
    assert settings.rate_factor(9_999, 1_000_000) == 1
    assert settings.rate_factor(4_999, 1_000_000) == pytest.approx(0.5)
    assert settings.rate_factor(10_000 + 990_000 // 2, 1_000_000) == pytest.approx(0.5)
    assert 0 < settings.rate_factor(999_999, 1_000_000) < 1e-5


@given(steps=st.integers(1, 500), warmup=st.floats(0, 0.99), schedule=SHAPES)
def test_it_climbs_then_falls_and_no_update_is_wasted(steps, warmup, schedule) -> None:
    shares = [
        rate_factor(step, steps=steps, warmup=warmup, schedule=schedule, decay=min(0.2, 1 - warmup))
        for step in range(steps)
    ]
    climb = round(warmup * steps)
    assert all(0 < value <= 1 for value in shares)
    assert shares[:climb] == sorted(shares[:climb])
    assert shares[climb:] == sorted(shares[climb:], reverse=True)
    assert max(shares) == 1


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.norm = torch.nn.LayerNorm(2)
        self.table = torch.nn.Embedding(4, 3)
        self.frozen = torch.nn.Parameter(torch.ones(2, 2), requires_grad=False)


def test_only_matrices_decay() -> None:
    model = Small()
    groups = OptimizerSettings(weight_decay=0.3).build(model).param_groups
    decay = {id(weight): group["weight_decay"] for group in groups for weight in group["params"]}
    expected = {"linear.weight": 0.3, "table.weight": 0.3, "linear.bias": 0, "norm.weight": 0, "norm.bias": 0}
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert {names[key]: value for key, value in decay.items()} == expected


def test_a_learner_of_vectors_alone() -> None:
    assert len(OptimizerSettings().build(torch.nn.LayerNorm(3)).param_groups) == 1


def trained(**settings) -> torch.Tensor:
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"blocks": torch.nn.Linear(4, 3)})
    chosen = OptimizerSettings(**{"learning_rate": 0.01, **settings})
    optimizer = chosen.build(model)
    for step in range(6):
        optimizer.zero_grad()
        model["blocks"](torch.ones(2, 4) * (step + 1)).square().sum().backward()
        limit(list(model.parameters()), chosen.clip)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * chosen.rate_factor(step, 6)
        optimizer.step()
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.parametrize(
    ("name", "value"),
    [("learning_rate", 0.02), ("beta1", 0.5), ("beta2", 0.9), ("epsilon", 0.1), ("weight_decay", 0.5), ("clip", 0.0),
     ("warmup", 0.5), ("schedule", "constant"), ("schedule", "cosine"), ("method", "muon"), ("muon_rate", 0.1),
     ("muon_iterations", 3), ("bias_correction", False), ("decay", 0.5)],
)  # fmt: skip
def test_every_setting_changes_the_weights(name, value) -> None:
    muon = {"method": "muon"}
    needed = {"muon_rate": muon, "muon_iterations": muon, "decay": {"schedule": "trapezoid"}}.get(name, {})
    assert not torch.equal(trained(**needed), trained(**needed, **{name: value}))


def test_every_setting_is_covered_by_the_test_above() -> None:
    (marks,) = test_every_setting_changes_the_weights.pytestmark
    assert {name for name, _ in marks.args[1]} == {field.name for field in dataclasses.fields(OptimizerSettings)}


def test_without_correction_the_steps_are_those_of_the_published_code() -> None:
    """google-research/bert's optimization.py, restated: means that start at 0 and are taken as they are."""
    model = torch.nn.Linear(4, 3)
    chosen = OptimizerSettings(learning_rate=0.01, weight_decay=0.1, bias_correction=False, schedule="constant")
    optimizer = chosen.build(model)
    weight, mean, square = (
        tensor.double().numpy() for tensor in (model.weight.detach().clone(), *torch.zeros(2, 3, 4))
    )
    for step in range(5):
        gradient = torch.randn(3, 4, generator=torch.Generator().manual_seed(step))
        model.weight.grad = gradient.clone()
        optimizer.step()
        mean = 0.9 * mean + 0.1 * gradient.double().numpy()
        square = 0.999 * square + 0.001 * gradient.double().numpy() ** 2
        weight = weight - 0.01 * (mean / (np.sqrt(square) + 1e-6) + 0.1 * weight)
    np.testing.assert_allclose(model.weight.detach().numpy(), weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [("learning_rate", 0.0), ("epsilon", -1.0), ("beta1", 1.0), ("beta2", -0.1), ("warmup", 1.0), ("warmup", 10_000.0),
     ("weight_decay", -0.1), ("clip", -1.0), ("learning_rate", math.nan),
     ("muon_rate", 0.0)],
)  # fmt: skip
def test_impossible_settings_are_refused(name, value) -> None:
    with pytest.raises(ValueError, match=name):
        OptimizerSettings(**{name: value})


def test_a_rate_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r'muon_rate = 0.1 does nothing with method = "adamw"'):
        OptimizerSettings(muon_rate=0.1)


def test_the_limit_is_on_the_norm_of_the_whole_gradient() -> None:
    weights = [torch.nn.Parameter(torch.zeros(size)) for size in (2, 1, 3)]
    weights[0].grad, weights[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    assert limit(weights, 10.0) == 5.0
    assert weights[0].grad.tolist() == [3.0, 0.0]
    assert limit(weights, 1.0) == 5.0
    assert weights[0].grad.tolist() == pytest.approx([0.6, 0.0], rel=1e-5)
    assert weights[1].grad.tolist() == pytest.approx([0.8], rel=1e-5)


@settings(max_examples=20)
@given(
    decay=st.sampled_from([0.0, 0.1]),
    corrected=st.booleans(),
    few=st.sampled_from([0.0, 0.5, 1.0]),
    read=st.lists(st.lists(st.integers(0, 29), min_size=1, max_size=12), min_size=1, max_size=6),
)
def test_a_sparse_gradient_moves_a_table_as_a_dense_one_does(
    decay: float, corrected: bool, few: float, read: list[list[int]]
) -> None:
    torch.manual_seed(0)
    chosen = OptimizerSettings(weight_decay=decay, bias_correction=corrected, clip=0.5, learning_rate=0.1)
    # In double precision: where a gradient is nearly 0, its rounding decides on an update of AdamW.
    dense = torch.nn.Sequential(torch.nn.Embedding(30, 8), torch.nn.Linear(8, 3)).double()
    sparse = copy.deepcopy(dense)
    optimizers = [chosen.build(dense), chosen.build(sparse)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adamw, "LARGE", 30)
        patch.setattr(adamw, "MAXIMUM_SPARSE_SHARE", few)
        adamw.give_row_gradients(sparse)
        for step, ids in enumerate(read):
            if step == 3:  # as after a checkpoint
                state = copy.deepcopy(optimizers[1].state_dict())
                optimizers[1] = chosen.build(sparse)
                optimizers[1].load_state_dict(state)
            norms = []
            for model, optimizer in zip((dense, sparse), optimizers):
                for part in (ids, ids[::2]):  # two passes, which read the same rows
                    model(torch.tensor(part)).square().sum().backward()
                norms.append(limit([*model.parameters()], chosen.clip))
                optimizer.step()
                optimizer.zero_grad()
            torch.testing.assert_close(*norms)
    for name, weight in dense.named_parameters():
        torch.testing.assert_close(sparse.get_parameter(name), weight, rtol=1e-6, atol=1e-9)
        for moment, value in optimizers[0].state[weight].items():
            torch.testing.assert_close(optimizers[1].state[sparse.get_parameter(name)][moment], value)


@pytest.mark.parametrize("passes", [1, 3])
def test_dense_steps_between_sparse_ones_move_all_rows(passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adamw, "LARGE", 90)
    torch.manual_seed(0)
    dense, sparse = (torch.nn.Embedding.from_pretrained(torch.eye(90, 30) + 0.3, freeze=False) for _ in range(2))
    adamw.give_row_gradients(sparse)
    optimizers = [OptimizerSettings(weight_decay=0.1, learning_rate=0.1).build(one) for one in (dense, sparse)]
    factors = torch.randn(passes, 6, 30)
    for step in range(9):
        for model, optimizer in zip((dense, sparse), optimizers):
            for number, factor in enumerate(factors):
                ids = torch.tensor([1, 5, 7, 20 + step, 40 + number, 60 + 2 * step])
                (model(ids) * factor).square().sum().backward()
            if step == 3:  # as an output layer that some steps have
                model.weight.square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        # Of several passes the order of the sums differs.
        torch.testing.assert_close(sparse.weight, dense.weight, rtol=0, atol=0 if passes == 1 else 1e-6)


def test_a_frozen_table_has_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adamw, "LARGE", 30)
    frozen = torch.nn.Embedding(30, 8).requires_grad_(False)
    adamw.give_row_gradients(frozen)
    assert not frozen.sparse


def test_a_table_that_an_output_layer_reads_whole_has_dense_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adamw, "LARGE", 30)
    model = torch.nn.Sequential(torch.nn.Embedding(30, 8), torch.nn.Embedding(30, 8), torch.nn.Embedding(29, 8))
    model.tied = (model[0],)
    adamw.give_row_gradients(model)
    assert [table.sparse for table in model] == [False, True, False]
