"""Corruption: how many positions, which ones, and the mix that stands there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.corrupt import choose, choose_words, corrupt_pieces, quotas, sample_items, word_bounds
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.text.tokenizer import Tokenizer


def noise(rows: int, seed: int = 0) -> Noise:
    """Return the noise of so many neighbouring examples."""
    return Noise.at(seed, np.arange(rows))


def columns(sequences: Sequence[tuple[np.ndarray, np.ndarray]]) -> Examples:
    """Return examples from where their words start and where their specials are; piece k of each is k."""
    return Examples.of(
        [
            Example(ids=np.arange(len(words)), segments=np.zeros(len(words), np.int8), words=words, special=special)
            for words, special in sequences
        ]
    )


def apart(examples: Examples, index: np.ndarray, counts: np.ndarray) -> list[list[int]]:
    """Return the chosen places in each example."""
    assert index.tolist() == sorted({*index.tolist()})
    rows = np.repeat(np.arange(len(examples)), counts)
    assert rows.tolist() == (np.searchsorted(examples.starts, index, side="right") - 1).tolist()
    return [(index[rows == row] - start).tolist() for row, start in enumerate(examples.starts.tolist())]


@pytest.mark.parametrize(
    ("tokens", "rate", "limit", "expected"),
    [
        (128, 0.15, 0, 19),
        (128, 0.15, 20, 19),
        (512, 0.15, 80, 77),
        (128, 0.3, 20, 20),
        (3, 0.15, 0, 1),
        (20, 0.15, 0, 3),
    ],
)
def test_the_quota_is_the_share_of_all_tokens_at_least_one(tokens: int, rate: float, limit: int, expected: int) -> None:
    assert quotas(np.array([tokens, tokens]), rate=rate, limit=limit).tolist() == [expected] * 2


@given(
    specials=st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=4),
    counts=st.lists(st.integers(0, 50), min_size=4, max_size=4),
    seed=st.integers(0, 99),
)
def test_chosen_positions_are_as_many_as_asked_never_special_and_each_examples_own_affair(
    specials: list[list[bool]], counts: list[int], seed: int
) -> None:
    examples = columns([(np.ones(len(special), bool), np.array(special)) for special in specials])
    asked = np.array(counts[: len(specials)])
    drawn_for = noise(len(specials), seed)
    found = apart(examples, *choose(examples, asked, drawn_for))
    for row, (places, special) in enumerate(zip(found, specials)):
        assert len(places) == min(counts[row], special.count(False))
        assert not np.array(special)[places].any()
        alone = columns([(np.ones(len(special), bool), np.array(special))])
        (again,) = apart(alone, *choose(alone, asked[row : row + 1], Noise(drawn_for.seeds[row : row + 1])))
        assert places == again


@pytest.mark.parametrize("count", [1, 2, 4, 9, 14, 17])
def test_every_position_and_every_two_are_as_likely_as_any_others(count: int) -> None:
    special = np.zeros(20, dtype=bool)
    special[[0, 9, 19]] = True
    tries = 4000
    examples = columns([(~special, special)] * tries)
    index, _ = choose(examples, np.full(tries, count), noise(tries))
    chosen = np.zeros(tries * 20)
    chosen[index] = 1
    hits = chosen.reshape(tries, 20)
    share, both = count / 17, count * (count - 1) / (17 * 16)
    assert not hits[:, special].any()
    assert np.abs(hits[:, ~special].mean(axis=0) - share).max() <= 4.5 * np.sqrt(share * (1 - share) / tries)
    together = (hits[:, ~special].T @ hits[:, ~special] / tries)[np.triu_indices(17, 1)]
    assert np.abs(together - both).max() <= 4.5 * np.sqrt(both * (1 - both) / tries)


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5), share=st.floats(0, 1), seed=st.integers(0, 9))
def test_so_many_are_drawn_of_each_row(sizes: list[int], share: float, seed: int) -> None:
    counts = [round(size * share) for size in sizes]
    taken = sample_items(np.array(sizes), np.array(counts), noise(len(sizes), seed))
    ends = np.cumsum(sizes).tolist()
    assert [int(taken[end - size : end].sum()) for end, size in zip(ends, sizes)] == counts


@pytest.mark.parametrize(
    ("mask", "random"), [(0.8, 0.1), (1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.8), (0.0, 1.0), (0.0, 0.0)]
)
def test_the_mixes_of_table_8(tokenizer: Tokenizer, mask: float, random: float) -> None:
    pieces = np.full(40_000, 17)
    counts = np.full(1_000, 40)
    shown = corrupt_pieces(pieces, counts, mask=mask, random=random, tokenizer=tokenizer, noise=noise(1_000))
    found = {"mask": (shown == tokenizer.mask).sum(), "same": (shown == 17).sum()}
    found["random"] = len(pieces) - found["mask"] - found["same"]
    for kind, share in (("mask", mask), ("random", random), ("same", max(0.0, 1 - mask - random))):
        # One random piece in 60,000 is the piece itself or [MASK].
        assert abs(found[kind] / len(pieces) - share) <= 4.5 * np.sqrt(share * (1 - share) / len(pieces)) + 2e-4
    assert (pieces == 17).all()


def test_random_pieces_are_of_the_whole_vocabulary(tokenizer: Tokenizer) -> None:
    counts = np.full(5_000, 40)
    shown = corrupt_pieces(np.zeros(200_000, int), counts, mask=0, random=1, tokenizer=tokenizer, noise=noise(5_000))
    assert (shown.min(), shown.max() < len(tokenizer)) == (0, True)
    tenths = np.histogram(shown, bins=10, range=(0, len(tokenizer)))[0] / len(shown)
    assert np.abs(tenths - 0.1).max() < 4.5 * np.sqrt(0.09 / len(shown))


TEXTS = st.lists(st.lists(st.integers(1, 4), max_size=12), min_size=1, max_size=3)
"""Texts between specials, each the sizes of its words in pieces."""
SHARES = st.sampled_from([(1.0,), (0.4, 0.3, 0.2, 0.1), (0.0, 1.0), (0.5, 0.0, 0.5)])


def sequence(texts: list[list[int]], *, broken: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return (words, special) of [CLS] text [SEP] text [SEP]; `broken`: the first word of each text began before it."""
    words, special = [False], [True]
    for text in texts:
        flags = [piece == 0 for size in text for piece in range(size)]
        words += [False, *flags[1:]] if broken and flags else flags
        special += [False] * len(flags)
        words.append(False)
        special.append(True)
    return np.array(words), np.array(special)


def words_of(texts: list[list[int]]) -> list[list[int]]:
    """Return the positions of each word: the plain re-statement of `word_bounds`."""
    found, place = [], 1
    for text in texts:
        for size in text:
            found.append([*range(place, place + size)])
            place += size
        place += 1
    return found


@given(texts=TEXTS, broken=st.booleans())
def test_words_are_where_they_were_put_even_if_they_began_before_the_text(texts: list[list[int]], broken: bool) -> None:
    firsts, ends = word_bounds(*sequence(texts, broken=broken))
    assert [[*range(first, end)] for first, end in zip(firsts, ends)] == words_of(texts)


def words_chosen(
    many: Sequence[list[list[int]]], count: int, noise: Noise, shares: Sequence[float] = (1.0,)
) -> list[list[int]]:
    """Return the places chosen in each of several sequences."""
    examples = columns([sequence(texts) for texts in many])
    return apart(examples, *choose_words(examples, np.full(len(many), count), noise, run_probabilities=shares))


@given(many=st.lists(TEXTS, min_size=1, max_size=4), count=st.integers(1, 30), shares=SHARES, seed=st.integers(0, 99))
def test_chosen_words_are_whole_within_the_quota_and_as_many_as_fit(
    many: list[list[list[int]]], count: int, shares: tuple[float, ...], seed: int
) -> None:
    drawn_for = noise(len(many), seed)
    for row, (texts, found) in enumerate(zip(many, words_chosen(many, count, drawn_for, shares))):
        chosen = {*found}
        whole = words_of(texts)
        assert chosen == {place for word in whole if chosen & set(word) for place in word}
        quota = max(count, min(map(len, whole), default=0))
        assert len(chosen) <= quota
        left = [word for word in whole if not chosen & set(word)]
        assert all(len(word) > quota - len(chosen) for word in left)
        assert [found] == words_chosen([texts], count, Noise(drawn_for.seeds[row : row + 1]), shares)


def plainly(texts: list[list[int]], count: int, drawn: list[int], order: list[int]) -> set[int]:
    """Return what is chosen when words are met in `order` and word k would start a run of drawn[k] words."""
    whole = words_of(texts)
    ends_text = {len(text) - 1 + before for text, before in zip(texts, itertools.accumulate([0, *map(len, texts)]))}
    quota, chosen = max(count, min(map(len, whole), default=0)), set()
    for start in order:
        if chosen & set(whole[start]):
            continue
        for follower in range(start, start + drawn[start]):
            if chosen & set(whole[follower]) or len(chosen) + len(whole[follower]) > quota:
                break
            chosen |= set(whole[follower])
            if follower in ends_text:
                break
    return chosen


@given(texts=TEXTS, count=st.integers(1, 30), shares=SHARES, seed=st.integers(0, 99))
def test_runs_of_words_are_as_stated_plainly(
    texts: list[list[int]], count: int, shares: tuple[float, ...], seed: int
) -> None:
    drawn_for, total = noise(1, seed), sum(map(len, texts))
    words, row = np.arange(total), np.zeros(total, np.int64)
    draws = drawn_for.stream(1).uniform(row, words)
    runs = [next(n for n, most in enumerate(np.cumsum(shares), 1) if draw < most) for draw in draws]
    expected = plainly(texts, count, runs, np.argsort(drawn_for.words(row, words)).tolist())
    (found,) = words_chosen([texts], count, drawn_for, shares)
    assert set(found) == expected


def test_runs_have_the_lengths_that_were_asked_for() -> None:
    shares = (0.4, 0.3, 0.2, 0.1)
    (index,) = words_chosen([[[1] * 60_000]], 1200, noise(1), shares)
    borders = np.flatnonzero(np.diff(index) > 1)
    lengths = np.diff(np.concatenate([[-1], borders, [len(index) - 1]]))
    for n, share in enumerate(shares, 1):
        # One run in fifty stands beside another by chance and looks like one with it.
        assert abs((lengths == n).mean() - share) < 4 * np.sqrt(share * (1 - share) / len(lengths)) + 0.02


def test_every_word_is_as_likely_as_any_other_of_its_length() -> None:
    texts, tries = [[1, 2, 3, 1, 2, 3, 1, 2, 3], [1, 2, 3]], 3000
    found = words_chosen([texts] * tries, 6, noise(tries))
    hits = np.bincount(np.concatenate(found))
    for size in (1, 2, 3):
        shares = [hits[word[0]] / tries for word in words_of(texts) if len(word) == size]
        assert np.ptp(shares) < 6 * np.sqrt(0.25 / tries)


def test_texts_without_words_give_nothing_to_choose() -> None:
    assert words_chosen([[[], []]], 3, noise(1)) == [[]]
    assert words_chosen([[[], []], [[2], []]], 3, noise(2)) == [[], [1, 2]]
