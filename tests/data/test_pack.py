"""Packing: the layout of a sequence, the fit to the longest length, and that spans use every piece once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.pack import Packer, Run, boundaries, shares
from osbert.text.document import Document
from osbert.text.tokenizer import Tokenizer

sizes = st.integers(0, 40)
rooms = st.integers(5, 40)


def run(first: int, size: int) -> Run:
    ids = np.arange(first, first + size)
    return Run(ids, ids % 3 == 0)


@given(size=sizes, length=rooms)
def test_a_single_text_stands_between_cls_and_sep(tokenizer: Tokenizer, size: int, length: int) -> None:
    text = run(10, size)
    example = Packer(tokenizer=tokenizer, length=length).single(text.ids, text.words, record=7)
    kept = min(size, length - 2)
    assert example.ids.tolist() == [tokenizer.cls, *range(10, 10 + kept), tokenizer.sep]
    assert example.special.tolist() == [True] + [False] * kept + [True]
    assert example.words.tolist() == [False, *text.words[:kept].tolist(), False]
    assert not example.segments.any()
    assert (example.truncated, example.record, example.order) == (size - kept, 7, None)


@given(first=sizes, second=sizes, length=rooms)
def test_a_pair_has_two_segments_and_is_cut_from_the_ends(
    tokenizer: Tokenizer, first: int, second: int, length: int
) -> None:
    example = Packer(tokenizer=tokenizer, length=length).pair(run(10, first), run(1000, second), record=3)
    left, right = shares(first, second, length - 3)
    cls, sep = tokenizer.cls, tokenizer.sep
    assert example.ids.tolist() == [cls, *range(10, 10 + left), sep, *range(1000, 1000 + right), sep]
    assert example.segments.tolist() == [0] * (left + 2) + [1] * (right + 1)
    assert np.flatnonzero(example.special).tolist() == [0, left + 1, left + right + 2]
    words = [False, *(run(10, left).words.tolist()), False, *(run(1000, right).words.tolist()), False]
    assert example.words.tolist() == words
    assert len(example) <= length
    assert (example.truncated, example.record) == (first + second - left - right, 3)


@given(first=sizes, second=sizes, room=st.integers(0, 40))
def test_shares_are_what_taking_one_at_a_time_from_the_longer_leaves(first: int, second: int, room: int) -> None:
    left, right = first, second
    while left + right > room:
        if left > right:
            left -= 1
        else:
            right -= 1
    assert shares(first, second, room) == (left, right)


@given(first=sizes, second=sizes, length=rooms, seed=st.integers(0, 9))
def test_a_random_pair_keeps_a_run_of_each_text(
    tokenizer: Tokenizer, first: int, second: int, length: int, seed: int
) -> None:
    packer = Packer(tokenizer=tokenizer, length=length)
    example = packer.random_pair(run(10, first), run(1000, second), np.random.default_rng(seed), {})
    left, right = shares(first, second, length - 3)
    pieces = example.ids[~example.special]
    for kept, start, size in ((pieces[:left], 10, first), (pieces[left:], 1000, second)):
        assert kept.tolist() == list(range(kept[0], kept[0] + len(kept))) if len(kept) else True
        assert all(start <= piece < start + size for piece in kept)
    assert (len(pieces), example.truncated) == (left + right, first + second - left - right)


def test_a_random_pair_is_cut_at_both_ends_alike(tokenizer: Tokenizer) -> None:
    packer, rng = Packer(tokenizer=tokenizer, length=23), np.random.default_rng(0)
    fronts = [packer.random_pair(run(0, 50), run(1000, 5), rng, {}).ids[1] for _ in range(400)]
    surplus = 50 - 15
    # A coin for each of 35 pieces: mean 17.5, standard deviation 3.
    assert abs(np.mean(fronts) - surplus / 2) < 4 * np.sqrt(surplus / 4 / 400)
    assert 2 < np.std(fronts) < 4


lengths_of_sentences = st.lists(st.integers(0, 30), min_size=1, max_size=12)


@given(lengths=lengths_of_sentences, longest=st.integers(1, 20))
def test_boundaries_keep_sentences_and_divide_long_ones_at_words(
    make_documents: Callable[..., list[Document]], lengths: list[int], longest: int
) -> None:
    (document,) = make_documents([lengths])
    bounds = boundaries(document, longest=longest)
    assert bounds == sorted(set(bounds))
    assert set(document.sentences.tolist()) <= set(bounds)
    assert all(end - start <= longest for start, end in itertools.pairwise(bounds))
    for start, added in itertools.pairwise(bounds):
        if added not in document.sentences:
            assert document.words[added] or not document.words[start + 1 : added + 1].any()


@given(
    lengths=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=10), min_size=1, max_size=5),
    length=st.integers(5, 60),
    short=st.sampled_from([0.0, 0.1, 1.0]),
    seed=st.integers(0, 9),
)
def test_spans_use_every_piece_once_in_order_and_never_cross_documents(
    tokenizer: Tokenizer,
    make_documents: Callable[..., list[Document]],
    lengths: list[list[int]],
    length: int,
    short: float,
    seed: int,
) -> None:
    documents = make_documents(lengths)
    packer = Packer(tokenizer=tokenizer, length=length, short=short)
    examples = list(packer.spans(documents, np.random.default_rng(seed)))
    pieces = [example.ids[~example.special] for example in examples]
    assert np.concatenate(pieces).tolist() == np.concatenate([document.ids for document in documents]).tolist()
    ends = {int(document.ids[-1]) for document in documents}
    for example, kept in zip(examples, pieces):
        assert len(example) <= length
        assert not example.truncated
        assert not ends & set(kept[:-1].tolist())
    if not short and max(map(max, lengths)) <= length - 2:
        # Each holds as much as fits: the sentence that begins the next would not have, or the document was over.
        sentence = dict(
            zip((int(d.ids[start]) for d in documents for start in d.sentences[:-1]), itertools.chain(*lengths))
        )
        for kept, after in itertools.pairwise(pieces):
            assert kept[-1] in ends or len(kept) + sentence[int(after[0])] > length - 2


def test_a_tenth_of_the_spans_aims_at_a_random_shorter_length(
    tokenizer: Tokenizer, make_documents: Callable[..., list[Document]]
) -> None:
    documents = make_documents([[1] * 40_000])
    spans = list(Packer(tokenizer=tokenizer, length=12).spans(documents, np.random.default_rng(0)))
    sizes = np.array([len(span) - 2 for span in spans[:-1]])
    # Aims are uniform over 2..10, so a ninth of the short ones are full after all.
    expected = 0.1 * 8 / 9
    assert abs((sizes < 10).mean() - expected) < 4 * np.sqrt(expected / len(sizes))
    assert set(sizes.tolist()) == set(range(2, 11))


@pytest.mark.parametrize(("settings", "word"), [({"length": 4}, "length"), ({"short": 1.5}, "short")])
def test_impossible_settings_are_refused(tokenizer: Tokenizer, settings: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Packer(tokenizer=tokenizer, **settings)
