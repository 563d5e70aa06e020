"""Every attention kernel equals `reference`, in values and gradients, for any lengths, order and window."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.data.batch import Batch
from osbert.models.transformer import runs
from osbert.models.transformer.kernels import Kernel, fastest, reference, sdpa
from osbert.models.transformer.layout import Layout, lay_out
from osbert.models.transformer.positions import rotation

KERNELS = {
    "sdpa": sdpa,
    # With dropout the CPU goes another way; so small a share rounds to none, which leaves that way comparable.
    "sdpa-with-dropout": partial(sdpa, dropout=1e-9),
}
HEADS, WIDTH = 2, 4

lengths = st.lists(st.integers(1, 13), min_size=1, max_size=6)
orders = st.sampled_from(["none", "causal", "random", "memory"])
windows = st.sampled_from([None, 1, 3])


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Make blocks of local layers so small that a short sequence has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "SMALLEST_BLOCK", 2)
        yield


def make_batch(lengths: list[int], order: str, generator: torch.Generator) -> Batch:
    sizes = torch.tensor(lengths)
    starts = sizes.cumsum(0) - sizes
    positions = torch.arange(int(sizes.sum())) - starts.repeat_interleave(sizes)
    ranks = {
        "none": None,
        "causal": positions.clone(),
        "random": torch.randint(0, 9, positions.shape, generator=generator),
        "memory": torch.where(positions < 2, -1, positions),
    }[order]
    zeros = torch.zeros_like(positions)
    return Batch(
        ids=zeros,
        positions=positions,
        segments=zeros,
        order=ranks,
        lengths=tuple(lengths),
        starts=starts,
        records=starts,
    )


def make_layout(lengths: list[int], order: str, generator: torch.Generator, window: int | None = None) -> Layout:
    layout = lay_out(make_batch(lengths, order, generator))
    return layout if window is None else layout.local(window)


def draw(layout: Layout, generator: torch.Generator) -> list[torch.Tensor]:
    shape = (sum(layout.lengths), HEADS, WIDTH)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@settings(max_examples=60)
@given(lengths=lengths, order=orders, window=windows, seed=st.integers(0, 2**16))
def test_values_and_gradients_equal_the_reference(kernel: Kernel, lengths, order, window, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = make_layout(lengths, order, generator, window)
    columns = draw(layout, generator)
    expected = reference(*columns, layout)
    found = kernel(*columns, layout)
    torch.testing.assert_close(found, expected)
    towards = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    wanted = torch.autograd.grad((expected * towards).sum(), columns)
    given_ = torch.autograd.grad((found * towards).sum(), columns)
    for one, other in zip(given_, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@settings(max_examples=60)
@given(lengths=lengths, order=orders, window=windows, seed=st.integers(0, 2**16), data=st.data())
def test_queries_of_some_tokens_get_what_all_would_give_them(kernel, lengths, order, window, seed, data) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = make_layout(lengths, order, generator, window)
    columns = draw(layout, generator)
    asked = [data.draw(st.sets(st.integers(0, length - 1))) for length in lengths]
    places = [sum(lengths[:number]) + place for number, found in enumerate(asked) for place in sorted(found)]
    some = layout.reading(torch.tensor(places, dtype=torch.int64), list(map(len, asked)))
    expected = reference(*columns, layout)[places]
    towards = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    wanted = torch.autograd.grad((expected * towards).sum(), columns)
    for each in (kernel, reference):
        found = each(some.read_of(columns[0]), *columns[1:], some)
        torch.testing.assert_close(found, expected)
        for one, other in zip(torch.autograd.grad((found * towards).sum(), columns), wanted, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kernel", [reference, *KERNELS.values()], ids=["reference", *KERNELS.keys()])
@settings(max_examples=40)
@given(lengths=lengths, order=orders, window=windows, seed=st.integers(0, 2**16), data=st.data())
def test_what_cannot_be_seen_changes_nothing(kernel: Kernel, lengths, order, window, seed, data) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = make_layout(lengths, order, generator, window)
    query, key, value = draw(layout, generator)
    changed = data.draw(st.integers(0, len(query) - 1))
    with torch.no_grad():
        before = kernel(query, key, value, layout)
        key[changed] += 1
        value[changed] += 1
        after = kernel(query, key, value, layout)
    sequence = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    ranks = torch.zeros(len(query)) if layout.order is None else layout.order
    near = torch.ones(()).bool() if window is None else (layout.positions - layout.positions[changed]).abs() <= window
    sees = (sequence == sequence[changed]) & (ranks[changed] <= ranks) & near
    assert torch.equal(before[~sees], after[~sees])
    assert torch.all((before[sees] - after[sees]).abs().amax(dim=(1, 2)) > 0)


@pytest.mark.parametrize("kernel", [reference, sdpa])
def test_dropout_keeps_the_mean_and_repeats_with_the_seed(kernel: Kernel) -> None:
    generator = torch.Generator().manual_seed(0)
    layout = make_layout([6, 6, 3], "none", generator)
    columns = [column.detach() for column in draw(layout, generator)]
    torch.manual_seed(7)
    first = kernel(*columns, layout, dropout=0.3)
    torch.manual_seed(7)
    assert torch.equal(first, kernel(*columns, layout, dropout=0.3))
    mean = torch.stack([kernel(*columns, layout, dropout=0.3) for _ in range(600)]).mean(dim=0)
    exact = kernel(*columns, layout)
    assert not torch.allclose(first, exact)
    torch.testing.assert_close(mean, exact, rtol=0, atol=0.15)


def test_runs_of_equal_lengths_are_joined() -> None:
    layout = make_layout([9, 9, 9, 4, 4, 1], "none", torch.Generator())
    assert [(run.count, run.length, run.visible) for run in layout.runs] == [(3, 9, None), (2, 4, None), (1, 1, None)]


def test_a_causal_order_needs_no_mask_and_another_one_does() -> None:
    causal = make_layout([5, 5, 2], "causal", torch.Generator())
    assert causal.causal and all(run.visible is None for run in causal.runs)
    other = make_layout([5, 5, 2], "memory", torch.Generator())
    assert not other.causal
    assert other.runs[0].visible.shape == (2, 1, 5, 5)
    assert other.runs[0].visible[0, 0, :, :2].all()
    assert not other.runs[0].visible[0, 0, 2, 3]


def test_local_layers_of_a_pass_share_a_layout_whose_memory_is_linear() -> None:
    layout = make_layout([60, 60, 30, 5, 2], "none", torch.Generator())
    local = layout.local(3)
    assert local is layout.local(3) and local is not layout.local(2)
    blocks, short, shorter = local.runs
    assert (blocks.tokens, blocks.visible.shape) == (150, (50, 1, 3, 9))
    assert (short.length, short.visible.shape) == (5, (1, 1, 5, 5))
    assert shorter.visible is None  # nothing is farther away than the window


def test_local_layers_have_turns_of_their_own() -> None:
    layout = lay_out(make_batch([4, 2], "none", torch.Generator()), rotary=WIDTH, base=160_000.0)
    positions = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.equal(layout.turns, rotation(positions, WIDTH, 160_000.0))
    assert torch.equal(layout.local(1, 10_000.0).turns, rotation(positions, WIDTH))
    assert layout.local(1).turns is layout.turns


def test_rotation_is_a_cosine_and_a_sine_a_pair() -> None:
    assert rotation(torch.arange(5), WIDTH).shape == (5, WIDTH // 2, 2)


@pytest.mark.parametrize("dropout", [0.0, 1e-9])
def test_in_bf16_the_cpu_attends_in_float32(dropout: float) -> None:
    generator = torch.Generator().manual_seed(3)
    layout = make_layout([5, 5, 3], "random", generator)
    columns = [column.detach().bfloat16().requires_grad_() for column in draw(layout, generator)]
    expected = reference(*(column.float() for column in columns), layout)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fastest(*columns, layout, dropout=dropout)
    assert torch.equal(found, found.bfloat16())
    torch.testing.assert_close(found, expected.bfloat16(), rtol=0.01, atol=1e-3)
    wanted = torch.autograd.grad(expected.sum(), columns)
    for one, other in zip(torch.autograd.grad(found.sum(), columns), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.01)
