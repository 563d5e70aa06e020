"""Attention with dropout equals the plain formula on the same random numbers, in values and gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.models.fast.dropout import Chances
from osbert.models.transformer import dropped_attention
from osbert.models.transformer.dropped_attention import attend
from osbert.models.transformer.runs import band, equal_lengths


def plain(query, key, value, *, visible, share, bias):
    chances = Chances(share)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias
    shares = scores.softmax(-1)
    if visible is not None:
        shares = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~visible, 0)
    return (shares * chances.factors(chances.draw(scores.shape), scores.dtype)) @ value


@settings(max_examples=60)
@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 5), st.integers(1, 5)),
    seen=st.sampled_from(["all", "one mask", "each its own", "keys"]),
    added=st.sampled_from(["nothing", "one bias", "each its own"]),
    most=st.integers(1, 200),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_equal_the_plain_formula(sizes, seen: str, added: str, most: int, seed: int) -> None:
    count, heads, queries, length = sizes
    torch.manual_seed(seed)
    widths = (queries, length, length)
    columns = [torch.randn(count * width, heads, 4, dtype=torch.float64).requires_grad_() for width in widths]
    masks = {"all": None, "one mask": (1, 1, queries, length), "each its own": (count, 1, queries, length)}
    masks["keys"] = (count, 1, 1, length)
    visible = None if masks[seen] is None else torch.rand(masks[seen]) < 0.5  # some see nothing
    bias = None
    if added != "nothing":
        bias = torch.randn(1 if added == "one bias" else count, heads, queries, length, dtype=torch.float64)
        columns.append(bias.requires_grad_())
    towards = torch.randn(count * queries, heads, 4, dtype=torch.float64)
    torch.manual_seed(seed)
    apart = (one.unflatten(0, (count, width)).transpose(1, 2) for one, width in zip(columns[:3], widths))
    wanted = plain(*apart, visible=visible, share=0.3, bias=bias).transpose(1, 2).flatten(0, 1)
    torch.manual_seed(seed)
    run = replace(equal_lengths(count, length, [queries] * count, torch.device("cpu")), visible=visible)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dropped_attention, "WEIGHTS", most)  # however the heads are parted
        found = attend(*columns[:3], [run], dropout=0.3, biases=[bias])
        torch.testing.assert_close(found, wanted)
        gradients = torch.autograd.grad((found * towards).sum(), columns)
    for one, other in zip(gradients, torch.autograd.grad((wanted * towards).sum(), columns)):
        torch.testing.assert_close(one, other)


@settings(max_examples=30)
@given(tokens=st.integers(1, 80), window=st.integers(0, 40), seed=st.integers(0, 99))
def test_overlapping_blocks_of_a_band_equal_the_plain_formula(tokens: int, window: int, seed: int) -> None:
    torch.manual_seed(seed)
    run = band(tokens, window)
    run = replace(run, visible=torch.rand(run.count, 1, run.width, run.length) < 0.5)
    columns = [torch.randn(tokens, 2, 4, dtype=torch.float64).requires_grad_() for _ in range(3)]
    towards = torch.randn(tokens, 2, 4, dtype=torch.float64)
    torch.manual_seed(seed)
    apart = (cut(one).transpose(1, 2) for cut, one in zip((run.spread, run.keys, run.keys), columns))
    wanted = run.flat(plain(*apart, visible=run.visible, share=0.3, bias=None).transpose(1, 2))
    torch.manual_seed(seed)
    found = attend(*columns, [run], dropout=0.3)
    torch.testing.assert_close(found, wanted)
    gradients = torch.autograd.grad((found * towards).sum(), columns)
    for one, other in zip(gradients, torch.autograd.grad((wanted * towards).sum(), columns)):
        torch.testing.assert_close(one, other)
