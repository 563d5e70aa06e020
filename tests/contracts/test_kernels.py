"""Every attention kernel equals `reference`, in values and gradients, for whatever tokens may see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, kw_only=True)
class Sights:
    """What tokens see: how their order and positions are made, whether some are unseen, and how far they see."""

    order: str = "none"
    places: bool = True
    unseen: bool = False
    window: int | None = None
    bias: str = "none"


sights = st.builds(
    Sights,
    order=st.sampled_from(["none", "causal", "random", "memory"]),
    places=st.booleans(),
    unseen=st.booleans(),
    window=st.sampled_from([None, 1, 3]),
    bias=st.sampled_from(["none", "none", "one", "each"]),
)


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Make blocks of local layers so small that a short sequence has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "SMALLEST_BLOCK", 2)
        yield


def make_batch(lengths: list[int], sights: Sights, generator: torch.Generator) -> Batch:
    sizes = torch.tensor(lengths)
    starts = sizes.cumsum(0) - sizes
    places = torch.arange(int(sizes.sum())) - starts.repeat_interleave(sizes)
    ranks = {
        "none": None,
        "causal": places.clone(),
        "random": torch.randint(0, 9, places.shape, generator=generator),
        "memory": torch.where(places < 2, -1, places),
    }[sights.order]
    return Batch(
        ids=places,
        positions=places if sights.places else torch.randint(0, 9, places.shape, generator=generator),
        segments=places,
        order=ranks,
        lengths=tuple(lengths),
        starts=starts,
        records=starts,
        unseen=torch.rand(places.shape, generator=generator) < 0.4 if sights.unseen else None,
    )


def make_layout(lengths: list[int], sights: Sights, generator: torch.Generator) -> Layout:
    layout = lay_out(make_batch(lengths, sights, generator))
    if sights.bias != "none":
        sizes = [(1 if sights.bias == "one" else run.count, HEADS, run.width, run.width) for run in layout.runs]
        layout = layout.with_biases([random(generator, *size) for size in sizes])
    return layout if sights.window is None else layout.local(sights.window)


def random(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def draw(layout: Layout, generator: torch.Generator) -> list[torch.Tensor]:
    return [random(generator, sum(layout.lengths), HEADS, WIDTH) for _ in range(3)]


def some_of(lengths: list[int], data: st.DataObject) -> tuple[torch.Tensor, list[int]]:
    """Return some tokens of sequences, maybe none of one, and how many of each."""
    chosen = [data.draw(st.sets(st.integers(0, length - 1))) for length in lengths]
    places = [sum(lengths[:number]) + place for number, found in enumerate(chosen) for place in sorted(found)]
    return torch.tensor(places, dtype=torch.int64), list(map(len, chosen))


def assert_same(found: torch.Tensor, expected: torch.Tensor, columns: Sequence[torch.Tensor]) -> None:
    """Assert that two results and their gradients are the same."""
    torch.testing.assert_close(found, expected)
    towards = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).view_as(expected)
    gradients = [torch.autograd.grad((each * towards).sum(), columns, retain_graph=True) for each in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def seen(layout: Layout) -> torch.Tensor:
    """Return (N, N), queries in rows: the rule, token by token."""
    count = sum(layout.lengths)
    sequence = [number for number, length in enumerate(layout.lengths) for _ in range(length)]

    def sees(q: int, k: int) -> bool:
        near = layout.window is None or abs(int(layout.positions[q] - layout.positions[k])) <= layout.window
        shown = layout.unseen is None or not layout.unseen[k]
        revealed = layout.order is None or bool(layout.order[k] <= layout.order[q])
        return sequence[q] == sequence[k] and near and shown and revealed

    return torch.tensor([[sees(q, k) for k in range(count)] for q in range(count)])


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@settings(max_examples=100)
@given(lengths=lengths, sights=sights, seed=st.integers(0, 2**16))
def test_values_and_gradients_equal_the_reference(kernel: Kernel, lengths: list[int], sights: Sights, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = make_layout(lengths, sights, generator)
    columns = draw(layout, generator)
    assert_same(kernel(*columns, layout), reference(*columns, layout), [*columns, *(layout.biases or ())])


@settings(max_examples=50)
@given(lengths=lengths, sights=sights, seed=st.integers(0, 2**16))
def test_the_reference_is_the_rule(lengths: list[int], sights: Sights, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = make_layout(lengths, replace(sights, bias="none"), generator)
    query, key, value = draw(layout, generator)
    scores = torch.einsum("qhk,shk->hqs", query, key) / WIDTH**0.5
    shares = scores.masked_fill(~seen(layout), float("-inf")).softmax(dim=-1).nan_to_num()
    torch.testing.assert_close(reference(query, key, value, layout), torch.einsum("hqs,shk->qhk", shares, value))


@pytest.mark.parametrize("kernel", [reference, *KERNELS.values()], ids=["reference", *KERNELS.keys()])
@settings(max_examples=60)
@given(lengths=lengths, sights=sights, seed=st.integers(0, 2**16), data=st.data())
def test_queries_of_some_tokens_get_what_all_would_give_them(kernel, lengths, sights, seed, data) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = make_layout(lengths, sights, generator)
    columns = draw(layout, generator)
    places, counts = some_of(lengths, data)
    some = layout.reading(places, counts)
    found = kernel(some.read_of(columns[0]), *columns[1:], some)
    assert_same(found, reference(*columns, layout)[places], [*columns, *(layout.biases or ())])


@pytest.mark.parametrize("kernel", [reference, *KERNELS.values()], ids=["reference", *KERNELS.keys()])
@pytest.mark.parametrize("counts", [[0, 0, 0, 0, 6], [1, 1, 0, 0, 6], [1, 1, 1, 1, 4]])
def test_queries_that_fill_every_cell_of_a_run_are_written(kernel: Kernel, counts: list[int]) -> None:
    lengths = [1, 1, 1, 1, 6]
    generator = torch.Generator().manual_seed(0)
    for sights in (Sights(window=1), Sights(window=1, order="random", unseen=True), Sights()):
        layout = make_layout(lengths, sights, generator)
        columns = draw(layout, generator)
        first = [sum(lengths[:number]) for number in range(len(lengths))]
        indices = torch.tensor([start + index for start, count in zip(first, counts) for index in range(count)])
        some = layout.reading(indices, counts)
        result = kernel(some.read_of(columns[0]), *columns[1:], some)
        assert_same(result, reference(*columns, layout)[indices], columns)


@pytest.mark.parametrize("kernel", [reference, *KERNELS.values()], ids=["reference", *KERNELS.keys()])
@settings(max_examples=40)
@given(pairs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5), data=st.data())
def test_queries_see_all_of_another_sequence_but_what_is_unseen(kernel, pairs, data) -> None:
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**16)))
    ours, theirs = ([*column] for column in zip(*pairs))
    source = make_layout(theirs, Sights(order="random", unseen=data.draw(st.booleans()), window=1), generator)
    target = make_layout(ours, Sights(order="causal"), generator)
    query, key, value = random(generator, sum(ours), HEADS, WIDTH), *draw(source, generator)[1:]
    scores = torch.einsum("qhk,shk->hqs", query, key) / WIDTH**0.5
    numbers = [torch.arange(len(pairs)).repeat_interleave(torch.tensor(sizes)) for sizes in (ours, theirs)]
    hidden = numbers[0][:, None] != numbers[1]
    hidden = hidden if source.unseen is None else hidden | source.unseen
    shares = scores.masked_fill(hidden, torch.finfo(torch.float64).min).softmax(dim=-1).masked_fill(hidden, 0)
    expected = torch.einsum("hqs,shk->qhk", shares, value)
    assert_same(kernel(query, key, value, target.across(source)), expected, [query, key, value])
    places, counts = some_of(ours, data)
    some = target.reading(places, counts).across(source)
    assert_same(kernel(query[places], key, value, some), expected[places], [query, key, value])


@pytest.mark.parametrize("kernel", [reference, *KERNELS.values()], ids=["reference", *KERNELS.keys()])
@pytest.mark.parametrize("bias", ["none", "each"])
@pytest.mark.parametrize("window", [None, 1])
def test_a_token_that_sees_nothing_is_given_nothing(kernel: Kernel, bias: str, window: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    layout = make_layout([7, 7, 3], Sights(bias=bias, window=window), generator)
    columns = draw(layout, generator)
    blind = replace(layout, unseen=torch.arange(17) < 7)
    mixed = kernel(*columns, blind)
    assert torch.equal(mixed[:7], torch.zeros(7, HEADS, WIDTH)) and mixed[7:].all()
    gradients = torch.autograd.grad(mixed.sum(), [*columns, *(layout.biases or ())])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not any(gradient[:7].any() for gradient in gradients[:3])


@pytest.mark.parametrize("kernel", [reference, *KERNELS.values()], ids=["reference", *KERNELS.keys()])
@settings(max_examples=40)
@given(lengths=lengths, sights=sights, seed=st.integers(0, 2**16), data=st.data())
def test_what_cannot_be_seen_changes_nothing(kernel: Kernel, lengths, sights, seed, data) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = make_layout(lengths, sights, generator)
    query, key, value = draw(layout, generator)
    changed = data.draw(st.integers(0, len(query) - 1))
    with torch.no_grad():
        before = kernel(query, key, value, layout)
        key[changed] += 1
        value[changed] += 1
        after = kernel(query, key, value, layout)
    sees = seen(layout)[:, changed]
    assert torch.equal(before[~sees], after[~sees])
    assert torch.all((before[sees] - after[sees]).abs().amax(dim=(1, 2)) > 0)


@pytest.mark.parametrize("kernel", [reference, sdpa])
def test_dropout_keeps_the_mean_and_repeats_with_the_seed(kernel: Kernel) -> None:
    generator = torch.Generator().manual_seed(0)
    layout = make_layout([6, 6, 3], Sights(), generator)
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
    layout = make_layout([9, 9, 9, 4, 4, 1], Sights(), torch.Generator())
    assert [(run.count, run.width, run.visible) for run in layout.runs] == [(3, 9, None), (2, 4, None), (1, 1, None)]


def test_a_causal_order_needs_no_mask_and_another_one_does() -> None:
    causal = make_layout([5, 5, 2], Sights(order="causal"), torch.Generator())
    assert causal.causal and all(run.causal and run.visible is None for run in causal.runs)
    other = make_layout([5, 5, 2], Sights(order="memory"), torch.Generator())
    assert not other.causal
    assert other.runs[0].visible.shape == (2, 1, 5, 5)
    assert other.runs[0].visible[0, 0, :, :2].all()
    assert not other.runs[0].visible[0, 0, 2, 3]


def test_an_order_that_is_the_positions_is_no_causal_order_where_those_are_given() -> None:
    batch = make_batch([4], Sights(), torch.Generator())
    back = torch.tensor([3, 2, 1, 0])
    layout = lay_out(replace(batch, positions=back, order=back))
    assert not layout.causal and layout.runs[0].visible[0, 0, 0].tolist() == [True] * 4
    by_place = lay_out(replace(batch, positions=back), causal=True)
    assert by_place.causal and by_place.order.tolist() == [0, 1, 2, 3]


def test_local_layers_of_a_pass_share_a_layout_whose_memory_is_linear() -> None:
    layout = make_layout([60, 60, 30, 5, 2], Sights(), torch.Generator())
    local = layout.local(3)
    assert local is layout.local(3) and local is not layout.local(2)
    blocks, short, shorter = local.runs
    assert (blocks.tokens, blocks.visible.shape) == (150, (50, 1, 3, 9))
    assert (short.width, short.visible.shape) == (5, (1, 1, 5, 5))
    assert shorter.visible is None  # nothing is farther away than the window


def test_local_layers_have_turns_of_their_own() -> None:
    layout = lay_out(make_batch([4, 2], Sights(), torch.Generator()), rotary=WIDTH, base=160_000.0)
    positions = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.equal(layout.turns, rotation(positions, WIDTH, 160_000.0))
    assert torch.equal(layout.local(1, 10_000.0).turns, rotation(positions, WIDTH))
    assert layout.local(1).turns is layout.turns


def test_rotation_is_a_cosine_and_a_sine_a_pair() -> None:
    assert rotation(torch.arange(5), WIDTH).shape == (5, WIDTH // 2, 2)


@pytest.mark.parametrize("dropout", [0.0, 1e-9])
def test_in_bf16_the_cpu_attends_in_float32(dropout: float) -> None:
    generator = torch.Generator().manual_seed(3)
    layout = make_layout([5, 5, 3], Sights(order="random"), generator)
    columns = [column.detach().bfloat16().requires_grad_() for column in draw(layout, generator)]
    expected = reference(*(column.float() for column in columns), layout)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fastest(*columns, layout, dropout=dropout)
    assert torch.equal(found, found.bfloat16())
    torch.testing.assert_close(found, expected.bfloat16(), rtol=0.01, atol=1e-3)
    wanted = torch.autograd.grad(expected.sum(), columns)
    for one, other in zip(torch.autograd.grad(found.sum(), columns), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.01)
