"""The GPU's kernel: its interface on torch's "meta" device, its values and gradients where there is a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from osbert.data.batch import Batch
from osbert.models.transformer.kernels import fastest, reference, weights
from osbert.models.transformer.kernels_cuda import fits, varlen
from osbert.models.transformer.layout import Layout, lay_out

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def make_layout(batch: Batch, device: str, *, causal: bool = False) -> Layout:
    batch = batch.to(torch.device(device))
    return lay_out(batch, causal=causal)


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
    assert fits(query.bfloat16(), plain.local(2)) and fits(query.bfloat16(), causal.local(2))
    read, counts = torch.tensor([0, 5]), (1, 1)
    assert fits(query.bfloat16(), plain.reading(read, counts))
    assert not fits(query.bfloat16(), replace(plain, unseen=torch.ones(8).bool()))
    assert not fits(query.bfloat16(), plain.with_biases([]))
    assert not fits(query.bfloat16(), causal.reading(read, counts))
    assert not fits(query.bfloat16(), plain.local(2).reading(read, counts))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 2])
def test_torch_takes_what_it_is_given(make_batch, dropout: float, causal: bool, window: int | None) -> None:
    layout = make_layout(make_batch([7, 4, 4]), "meta", causal=causal)
    layout = layout if window is None else layout.local(window)
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


def test_queries_may_be_of_another_sequence(make_batch) -> None:
    target, source = (make_layout(make_batch(lengths), "meta") for lengths in ([7, 4, 4], [9, 3, 2]))
    query, (_, key, value) = draw(target, "meta")[0], draw(source, "meta")
    mixed = varlen(query, key, value, target.across(source))
    assert mixed.shape == (15, 2, 64)
    mixed.sum().backward()
    assert key.grad.shape == (14, 2, 64)


def test_bounds_say_where_sequences_begin_and_end(make_batch) -> None:
    bounds = make_layout(make_batch([7, 4, 4]), "cpu").bounds
    assert bounds.dtype == torch.int32 and bounds.tolist() == [0, 7, 11, 15]


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return how far two tensors are apart, over the length of the second; what is not finite never passes."""
    off = (found.detach().float() - wanted.detach()).norm() / wanted.detach().norm()
    return float(off.nan_to_num(float("inf")))


@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("lengths", [[70, 33, 33, 1], [512, 300, 129, 128, 2]], ids=["short", "long"])
def test_values_and_gradients_equal_the_reference(make_batch, lengths: list[int], window, causal: bool) -> None:
    layout = make_layout(make_batch(lengths), "cuda", causal=causal)
    layout = layout if window is None else layout.local(window)
    columns = draw(layout, "cuda")
    exact = [column.detach().float().requires_grad_() for column in columns]
    found, wanted = fastest(*columns, layout), reference(*exact, layout)
    assert found.dtype == torch.bfloat16 and distance(found, wanted) < 0.01
    towards = torch.randn_like(wanted)
    gradients = torch.autograd.grad((found.float() * towards).sum(), columns)
    for one, other in zip(gradients, torch.autograd.grad((wanted * towards).sum(), exact), strict=True):
        assert distance(one, other) < 0.02


@needs_gpu
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("window", [None, 20])
def test_what_flash_attention_cannot_hide_goes_the_general_way(make_batch, biased: bool, window: int | None) -> None:
    """Orders, unseen tokens, which leave the first sequence without any, and biases."""
    batch = make_batch([300, 70, 33, 33, 1], order="random")
    batch = replace(batch, unseen=torch.arange(437) < 305)
    layout = make_layout(batch, "cuda")
    columns = draw(layout, "cuda")
    if biased:
        biases = [torch.randn(run.count, 2, run.width, run.width, device="cuda") for run in layout.runs]
        layout = layout.with_biases([bias.requires_grad_() for bias in biases])
    layout = layout if window is None else layout.local(window)
    exact = [column.detach().float().requires_grad_() for column in columns]
    found, wanted = fastest(*columns, layout), reference(*exact, layout)
    assert not found[:300].any() and distance(found, wanted) < 0.02
    towards, learnt = torch.randn_like(wanted), [*(layout.biases or ())]
    gradients = torch.autograd.grad((found.float() * towards).sum(), [*columns, *learnt])
    for one, other in zip(gradients, torch.autograd.grad((wanted * towards).sum(), [*exact, *learnt]), strict=True):
        assert distance(one, other) < 0.05 or not other.any()


@needs_gpu
def test_queries_of_another_sequence_equal_those_of_the_reference(make_batch) -> None:
    target, source = (make_layout(make_batch(lengths), "cuda") for lengths in ([90, 40, 3], [130, 20, 7]))
    layout = target.across(source)
    query, (_, key, value) = draw(target, "cuda")[0], draw(source, "cuda")
    exact = [column.detach().float().requires_grad_() for column in (query, key, value)]
    found, wanted = fastest(query, key, value, layout), reference(*exact, layout)
    assert fits(query, layout) and distance(found, wanted) < 0.01
    towards = torch.randn_like(wanted)
    gradients = torch.autograd.grad((found.float() * towards).sum(), [query, key, value])
    for one, other in zip(gradients, torch.autograd.grad((wanted * towards).sum(), exact), strict=True):
        assert distance(one, other) < 0.02


@needs_gpu
def test_queries_of_some_tokens_equal_those_of_the_reference(make_batch) -> None:
    layout = make_layout(make_batch([300, 33, 33, 1]), "cuda")
    columns = draw(layout, "cuda")
    exact = [column.detach().float().requires_grad_() for column in columns]
    read = torch.tensor([0, 7, 150, 299, 300, 332, 333, 366], device="cuda")
    some = layout.reading(read, (4, 2, 1, 1))
    found = fastest(columns[0][read], *columns[1:], some)
    wanted = reference(*exact, layout)[read]
    assert distance(found, wanted) < 0.01
    towards = torch.randn_like(wanted)
    gradients = torch.autograd.grad((found.float() * towards).sum(), columns)
    for one, other in zip(gradients, torch.autograd.grad((wanted * towards).sum(), exact), strict=True):
        assert distance(one, other) < 0.02


@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
def test_dropout_drops_weights_and_nothing_else(make_batch, causal: bool) -> None:
    """Values that are rows of the identity make the mixed values the very weights, so that what was dropped is seen."""
    lengths, share = [64, 40, 40, 9], 0.25
    layout = make_layout(make_batch(lengths), "cuda", causal=causal)
    columns = draw(layout, "cuda")
    exact = [column.detach().float().requires_grad_() for column in columns]
    places = torch.cat([torch.arange(length) for length in lengths])
    identity = torch.eye(64, device="cuda", dtype=torch.bfloat16)[places][:, None].expand(-1, 2, -1).contiguous()
    torch.manual_seed(7)
    dropped = varlen(*(column.detach() for column in columns[:2]), identity, layout, dropout=share).float()
    torch.manual_seed(7)
    found = varlen(*columns, layout, dropout=share)
    mixed, kept, seen, start = [], 0, 0, 0
    for length, all_weights in zip(lengths, weights(*exact[:2], layout), strict=True):
        here = slice(start, start + length)
        some = dropped[here].transpose(0, 1)[..., :length]  # (H, T, T)
        mask = (some != 0).float() / (1 - share)
        assert distance(some, all_weights * mask) < 0.01
        mixed.append(torch.einsum("hqs,shk->qhk", all_weights * mask, exact[2][here]))
        visible = all_weights > 1e-6
        kept, seen = kept + int((some[visible] != 0).sum()), seen + int(visible.sum())
        start += length
    assert kept / seen == pytest.approx(1 - share, abs=0.03)
    wanted = torch.cat(mixed)
    assert distance(found, wanted) < 0.01
    towards = torch.randn_like(wanted)
    gradients = torch.autograd.grad((found.float() * towards).sum(), columns)
    for one, other in zip(gradients, torch.autograd.grad((wanted * towards).sum(), exact), strict=True):
        assert distance(one, other) < 0.02


@needs_gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_gradient_is_the_same_every_time(make_batch, dropout: float) -> None:
    """Of sequences that are several tiles long too, whose queries' gradients come from all of them."""
    layout = make_layout(make_batch([512] * 8 + [300] * 8), "cuda")
    columns = draw(layout, "cuda")
    towards = torch.randn(columns[0].shape, device="cuda", dtype=torch.bfloat16)
    first: tuple[torch.Tensor, ...] = ()
    for _ in range(5):
        torch.manual_seed(7)
        gradients = torch.autograd.grad(varlen(*columns, layout, dropout=dropout), columns, towards)
        first = first or gradients
        assert all(torch.equal(one, other) for one, other in zip(gradients, first, strict=True))
    assert torch.get_deterministic_debug_mode() == 0


@needs_gpu
def test_nothing_makes_the_host_wait(make_batch, make_backbone) -> None:
    from osbert.models.contract import Learner
    from osbert.models.heads.predictions import MaskedLanguageHead

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
