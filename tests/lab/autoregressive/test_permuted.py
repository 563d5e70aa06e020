"""Permuted prediction: its queries and their order by law, its spans and ranks by count."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.text.document import Document
from osbert_lab.autoregressive.permuted import PermutedLanguage, choose_spans

LONG = 400


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6), rate=st.floats(0.01, 1.0), seed=st.integers(0, 9))
def test_a_query_sees_what_is_revealed_before_its_piece(
    packer: Packer, make_documents: Callable[..., list[Document]], lengths: list[int], rate: float, seed: int
) -> None:
    objective, rng = PermutedLanguage(rate=rate), np.random.default_rng(seed)
    for span in packer.spans(make_documents([lengths]), rng):
        example, n = objective.corrupt(span, packer, rng), len(span)
        if n == 3:  # a lone piece has nothing to be predicted from
            assert len(example) == n and not example.targets
            continue
        target = example.targets["permuted"]
        order, positions, unseen = example.order, example.positions, example.unseen
        assert target.index is not None and order is not None and positions is not None and unseen is not None
        assert (example.ids[:n] == span.ids).all() and positions[:n].tolist() == [*range(n)]
        places = positions[n:]
        assert target.index.tolist() == np.flatnonzero(unseen).tolist() == [*range(n, len(example))]
        assert (target.labels == span.ids[places]).all() and not span.special[places].any()
        assert (example.ids[n:] == packer.tokenizer.mask).all() and (
            example.segments[n:] == span.segments[places]
        ).all()
        assert len(places) == min(max(1, round(n * rate)), n - 3)
        late = order[:n] > 0
        assert set(np.flatnonzero(late)) == {*places, *np.flatnonzero(span.special)}
        assert sorted(order[:n][late]) == [*range(2, 2 * late.sum() + 1, 2)]
        for query, place in zip(order[n:], places, strict=True):  # section 2.2: x_t given x_(<t), and not itself
            assert (order[:n] <= query).tolist() == (order[:n] < order[place]).tolist()


def test_the_published_row_has_85_of_512_predicted(packer: Packer) -> None:
    found = PermutedLanguage().corrupt(words(510, special=2), packer, np.random.default_rng(0))
    assert len(found.targets["permuted"].labels) == 85


def words(count: int, special: int = 0) -> Example:
    """Return a text of words of one to three pieces, with specials behind it."""
    rng = np.random.default_rng(1)
    starts = np.concatenate([[True], rng.random(count - 1) < 0.6, np.zeros(special, np.bool_)])
    ids = np.arange(count + special)
    return Example(ids=ids, segments=ids * 0, words=starts, special=ids >= count)


def plain_walk(starts: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the spans of a walk, one draw after the other, as the published code does."""
    at, odds = 0, 1 / np.arange(1, 6)
    while True:
        size = int(rng.choice(np.arange(1, 6), p=odds / odds.sum()))
        before = int(rng.integers(6 * size))
        begin = at + before
        while begin < len(starts) and not starts[begin]:
            begin += 1
        if begin + size >= len(starts):
            return
        yield begin, begin + size
        at = begin + size + 6 * size - before


def runs(chosen: np.ndarray) -> np.ndarray:
    """Return the lengths of the runs of chosen tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    return edges[1::2] - edges[::2]


def test_spans_are_as_of_a_plain_walk() -> None:
    """Chi-square of two samples at a fixed seed: lengths of runs, and how many tokens of each stretch are chosen."""
    example, draws, rng = words(LONG), 800, np.random.default_rng(0)
    noise = Noise.from_rng(rng, draws)
    many = Examples.of([example] * draws)
    ours = choose_spans(many, np.full(draws, LONG), noise, longest=5, context=6).reshape(draws, LONG)
    theirs = np.zeros_like(ours)
    for row in theirs:
        for begin, end in plain_walk(example.words, rng):
            row[begin:end] = True
    lengths = [np.bincount(np.concatenate([*map(runs, one)]))[1:] for one in (ours, theirs)]
    assert chi_square(*lengths) < 18.5  # four degrees of freedom, once in a thousand
    stretches = [found.sum(0).reshape(20, -1).sum(1) for found in (ours, theirs)]
    # A span is chosen whole, so that a stretch's count varies up to five times as much as that of single tokens.
    assert chi_square(*stretches) < 5 * 43.8
    assert 0.125 < ours.mean() < 0.145  # "about 1 / 7", less the tokens before a word begins


def chi_square(one: np.ndarray, other: np.ndarray) -> float:
    """Return the statistic of two samples of counts."""
    first, second = one.sum(), other.sum()
    return float(((one * np.sqrt(second / first) - other * np.sqrt(first / second)) ** 2 / (one + other)).sum())


def test_every_order_is_as_likely_as_any_other(packer: Packer) -> None:
    """Chi-square with 23 degrees of freedom at a fixed seed: 49.7 is exceeded once in a thousand."""
    span = packer.single(np.arange(10, 20), np.ones(10, np.bool_))
    many = PermutedLanguage().corrupt_all(Examples.of([span] * 6000), packer, Noise.at(0, np.arange(6000)))
    orders = [tuple(order[order > 0]) for one in many if (order := one.order[:12]) is not None]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24  # two pieces and two specials
    assert ((counts - 250) ** 2 / 250).sum() < 49.7


@pytest.mark.parametrize("settings", [{"rate": 0.0}, {"rate": 1.5}, {"longest": 0}, {"context": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        PermutedLanguage(**settings)  # type: ignore[arg-type]
