"""The GPU's kernel: its interface on torch's "meta" device, its values and gradients where there is a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from osbert.data.batch import Batch
from osbert.models.kernels import fastest, reference
from osbert.models.kernels_cuda import fits, varlen
from osbert.models.layout import Layout, lay_out

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def make_layout(batch: Batch, device: str, *, causal: bool = False) -> Layout:
    batch = batch.to(torch.device(device))
    return lay_out(replace(batch, order=batch.positions) if causal else batch)


def draw(layout: Layout, device: str) -> list[torch.Tensor]:
    shape = (sum(layout.lengths), 2, 64)
    return [torch.randn(shape, device=device, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]


def test_it_fits_halves_and_plain_orders_only(make_batch) -> None:
    plain, causal = (make_layout(make_batch([5, 3]), "cpu", causal=causal) for causal in (False, True))
    other = make_layout(make_batch([5, 3], order="random"), "cpu")
    query = torch.zeros(8, 2, 64)
    assert fits(query.bfloat16(), plain) and fits(query.half(), causal)
    assert not fits(query, plain)
    assert not fits(query.bfloat16(), other)
    assert not fits(query.bfloat16()[..., :63], plain)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("causal", [False, True])
def test_torch_takes_what_it_is_given(make_batch, dropout: float, causal: bool) -> None:
    layout = make_layout(make_batch([7, 4, 4]), "meta", causal=causal)
    columns = draw(layout, "meta")
    mixed = varlen(*columns, layout, dropout=dropout)
    assert mixed.shape == (15, 2, 64)
    mixed.sum().backward()
    assert all(column.grad.shape == (15, 2, 64) for column in columns)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_queries_may_be_of_some_tokens_only(make_batch, dropout: float) -> None:
    layout = make_layout(make_batch([7, 4, 4]), "meta")
    query, key, value = draw(layout, "meta")
    some = layout.reading(torch.tensor([0, 3, 7, 11, 14], device="meta"), (2, 1, 2))
    mixed = varlen(some.read_of(query), key, value, some, dropout=dropout)
    assert mixed.shape == (5, 2, 64)
    mixed.sum().backward()
    assert query.grad.shape == (15, 2, 64)


def test_bounds_say_where_sequences_begin_and_end(make_batch) -> None:
    bounds = make_layout(make_batch([7, 4, 4]), "cpu").bounds
    assert bounds.dtype == torch.int32 and bounds.tolist() == [0, 7, 11, 15]


@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients_equal_the_reference(make_batch, causal: bool) -> None:
    layout = make_layout(make_batch([70, 33, 33, 1]), "cuda", causal=causal)
    columns = draw(layout, "cuda")
    exact = [column.detach().float().requires_grad_() for column in columns]
    found, wanted = fastest(*columns, layout), reference(*exact, layout)
    torch.testing.assert_close(found.float(), wanted, rtol=0.02, atol=0.02)
    read = torch.tensor([0, 69, 70, 103, 104, 136], device="cuda")
    some = layout.reading(read, (2, 1, 2, 1))
    if not causal:
        torch.testing.assert_close(
            fastest(columns[0][read], *columns[1:], some).float(), wanted[read], rtol=0.02, atol=0.02
        )
    towards = torch.randn_like(wanted)
    gradients = torch.autograd.grad((found.float() * towards).sum(), columns)
    for one, other in zip(gradients, torch.autograd.grad((wanted * towards).sum(), exact)):
        torch.testing.assert_close(one.float(), other, rtol=0.05, atol=0.05)


@needs_gpu
def test_dropout_keeps_the_mean_and_repeats_with_the_seed(make_batch) -> None:
    layout = make_layout(make_batch([70, 33, 33, 1]), "cuda")
    columns = [column.detach() for column in draw(layout, "cuda")]
    torch.manual_seed(7)
    first = varlen(*columns, layout, dropout=0.3)
    torch.manual_seed(7)
    assert torch.equal(first, varlen(*columns, layout, dropout=0.3))
    mean = torch.stack([varlen(*columns, layout, dropout=0.3).float() for _ in range(600)]).mean(dim=0)
    torch.testing.assert_close(mean, varlen(*columns, layout).float(), rtol=0, atol=0.2)


@needs_gpu
def test_nothing_makes_the_host_wait(make_batch, make_backbone) -> None:
    from osbert.models.heads import Learner
    from osbert.models.predictions import MaskedLanguageHead

    backbone = make_backbone(width=128).train()
    learner = Learner(backbone, {"mlm": MaskedLanguageHead(backbone)}).cuda()
    batch = make_batch([30, 20, 20], masked=3)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            total = learner(batch.to(torch.device("cuda")))["mlm"].total
        total.backward()

    step()  # what is set up once may wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
