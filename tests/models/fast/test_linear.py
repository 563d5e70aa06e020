"""Linear layers: the same products as torch's, in few shapes where each shape costs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

from osbert.models.fast import linear as module
from osbert.models.fast.linear import FEW, MANY, ROWS, Linear, multiply
from osbert.training.optimizer import OptimizerSettings

needs_onednn = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch is built without oneDNN"
)


@pytest.fixture
def shapes(monkeypatch) -> list[int]:
    """Return the numbers of rows that products are made of from here on."""
    seen: list[int] = []
    product = functional.linear

    def listen(rows, *others):
        seen.append(len(rows))
        return product(rows, *others)

    monkeypatch.setattr(module.functional, "linear", listen)
    return seen


@pytest.mark.parametrize("count", [0, 1, ROWS - 1, ROWS, ROWS + 1])
@pytest.mark.parametrize("biases", [True, False])
def test_it_equals_torchs_in_bf16_with_its_gradients(count: int, biases: bool) -> None:
    torch.manual_seed(0)
    layer = Linear(24, 40, bias=biases)
    rows = torch.randn(count, 24)
    found = []
    for product in (layer, lambda x: functional.linear(x, layer.weight, layer.bias)):
        layer.zero_grad()
        given = rows.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = product(given)
        (out.float() ** 2).sum().backward()
        found.append((out, given.grad, *(weight.grad for weight in layer.parameters())))
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def test_in_bf16_on_a_cpu_products_have_few_shapes(shapes) -> None:
    layer = Linear(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert [len(layer(torch.zeros(count, 4))) for count in (1, ROWS, ROWS + 1)] == [1, ROWS, ROWS + 1]
    assert shapes == [ROWS, ROWS, 2 * ROWS]


def test_in_float32_nothing_is_added(shapes) -> None:
    layer = Linear(4, 4)
    assert len(layer(torch.zeros(5, 4))) == 5
    assert shapes == [5]


@needs_onednn
@pytest.mark.parametrize("count", [MANY, MANY + 1])
@pytest.mark.parametrize("biases", [True, False])
def test_in_float32_onednn_gives_mkls_products_and_gradients(monkeypatch, count: int, biases: bool) -> None:
    torch.manual_seed(0)
    layer = Linear(24, 40, bias=biases)
    rows = torch.randn(count, 24)
    found = []
    for spared in (False, True):
        monkeypatch.setattr(module, "spares_time", lambda value=spared: value)
        layer.zero_grad()
        given = rows.clone().requires_grad_()
        out = layer(given)
        out.sin().sum().backward()
        with torch.no_grad():
            found.append((out, layer(rows), given.grad, *(weight.grad for weight in layer.parameters())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_few_rows_are_no_work_for_onednn(monkeypatch, shapes) -> None:
    monkeypatch.setattr(module, "spares_time", lambda: True)
    assert len(multiply(torch.zeros(MANY - 1, 4), torch.zeros(8, 4))) == MANY - 1
    assert shapes == [MANY - 1]


@pytest.fixture
def orders(monkeypatch) -> list[int]:
    """Products of few rows are oneDNN's on any CPU; return the sizes of the weights that are rearranged for them."""
    seen: list[int] = []
    reorder = torch.ops.mkldnn._reorder_linear_weight

    def listen(weight, batch):
        seen.append(weight.numel())
        return reorder(weight, batch)

    monkeypatch.setattr(module, "spares_time", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", listen)
    return seen


@needs_onednn
@pytest.mark.parametrize("biases", [True, False])
def test_a_weight_is_rearranged_once_for_few_rows_of_any_number(orders, biases: bool) -> None:
    torch.manual_seed(0)
    layer = Linear(256, 300, bias=biases)
    for count in (0, 1, 2, 15, 17, 33, FEW - 1, FEW, FEW + 1):
        rows = torch.randn(count, 256)
        expected = functional.linear(rows, layer.weight, layer.bias)
        with torch.inference_mode():
            torch.testing.assert_close(layer(rows), expected, rtol=1e-5, atol=1e-5)
    assert orders == [layer.weight.numel()]


@needs_onednn
def test_a_changed_weight_is_rearranged_again(orders) -> None:
    torch.manual_seed(0)
    layer, rows = Linear(256, 256, bias=False), torch.ones(1, 256)

    def changed() -> float:
        with torch.inference_mode():
            return float(layer(rows).sum()) / float(layer.weight.sum())

    assert changed() == pytest.approx(1, abs=1e-3)
    with torch.no_grad():
        layer.weight.fill_(2)  # in place, as an optimizer does
    assert changed() == pytest.approx(1)
    layer.weight.data = torch.full((256, 256), 3.0)
    assert changed() == pytest.approx(1)
    layer.load_state_dict({"weight": torch.full((256, 256), 4.0)})
    assert changed() == pytest.approx(1)
    assert len(orders) == 4


def move_and_replace(layer: Linear) -> None:
    """Give a weight twice new memory, the second time that of its first numbers, which are free again."""
    layer.weight.data = layer.weight.data * 2
    layer.weight.data = layer.weight.data * 2


CHANGES = {
    "all numbers": lambda layer: layer.weight.data.mul_(-2),
    "other numbers": lambda layer: layer.weight.data.copy_(layer.weight.data.flip(0)),
    "a row": lambda layer: layer.weight.data[7].zero_(),
    "a column": lambda layer: layer.weight.data[:, 7].zero_(),
    "an array": lambda layer: np.copyto(layer.weight.detach().numpy(), 0.5),
    "new memory": move_and_replace,
    "bf16 and back": lambda layer: layer.bfloat16().float(),
}


@needs_onednn
@pytest.mark.parametrize("shape", [(256, 256), (1024, 256), (256, 1024)])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_past_the_version_is_seen(orders, change: str, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer, rows = Linear(*shape), torch.randn(3, shape[0])
    for number in range(2):
        if number:
            CHANGES[change](layer)
        expected = functional.linear(rows, layer.weight, layer.bias)
        with torch.inference_mode():
            torch.testing.assert_close(layer(rows), expected, rtol=1e-5, atol=1e-5)
    assert len(orders) == 2


@needs_onednn
@pytest.mark.parametrize("build", [partial(torch.optim.AdamW, fused=True), OptimizerSettings().build])
def test_a_weight_that_an_optimizer_has_changed_is_rearranged_again(orders, build) -> None:
    torch.manual_seed(0)
    layer, rows = Linear(256, 256), torch.randn(3, 256)
    optimizer = build(layer.parameters() if isinstance(build, partial) else layer)
    for _ in range(3):
        layer(rows).square().sum().backward()
        optimizer.step()
        expected = functional.linear(rows, layer.weight, layer.bias)
        with torch.inference_mode():
            torch.testing.assert_close(layer(rows), expected, rtol=1e-5, atol=1e-5)
    assert len(orders) == 3


@needs_onednn
def test_training_and_small_weights_do_not_keep_a_second_copy(orders) -> None:
    small, large = Linear(8, 8), Linear(256, 256)
    with torch.no_grad():
        large(torch.ones(3, 256))
    large(torch.ones(3, 256)).sum().backward()
    with torch.inference_mode():
        small(torch.ones(3, 8))
        functional.linear(torch.ones(3, 256), large.weight)
        module.linear(torch.ones(3, 256), large.weight[:128])
    assert orders == []


def test_few_numbers_of_rows_are_computed(monkeypatch) -> None:
    computed = set()

    def product(rows, weight, *others):
        computed.add(len(rows))
        return torch.zeros(len(rows), 256)

    monkeypatch.setattr(module, "spares_time", lambda: True)
    monkeypatch.setattr(module, "rearrange", lambda weight: weight)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", product)
    layer = Linear(256, 256)
    with torch.inference_mode():
        for count in range(1, FEW + 1):
            assert len(layer(torch.zeros(count, 256))) == count
    assert len(computed) <= 40 and max(computed) == FEW
