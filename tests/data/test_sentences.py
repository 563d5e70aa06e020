"""Sentences: cut where they are too long, how far they reach, and where a walk through them leads."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.pack import Sentences, walk
from osbert.text.document import Document, Documents

TEXTS = st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=5)


@given(lengths=TEXTS, longest=st.integers(1, 20))
def test_sentences_are_kept_and_long_ones_divided_at_words(
    make_documents: Callable[..., list[Document]], lengths: list[list[int]], longest: int
) -> None:
    documents = Documents.of(make_documents(lengths))
    sentences = Sentences(documents, longest=longest)
    bounds = sentences.bounds.tolist()
    assert bounds == sorted(set(bounds))
    assert set(documents.sentences.tolist()) <= set(bounds)
    assert all(end - start <= longest for start, end in itertools.pairwise(bounds))
    for start, added in itertools.pairwise(bounds):
        if added not in documents.sentences:
            # As late as it can be: at the last word start that is near enough, or where there is none.
            assert documents.words[added] or added == start + longest
            assert not documents.words[added + 1 : start + longest + 1].any()
            assert documents.words[added] or not documents.words[start + 1 : added + 1].any()
    borders = documents.sentences[documents.starts]
    homes = np.searchsorted(borders, bounds[:-1], side="right") - 1
    assert sentences.numbers.tolist() == homes.tolist()
    assert [bounds[after] for after in sentences.after] == borders[homes + 1].tolist()


@given(lengths=TEXTS, aim=st.integers(1, 60), longest=st.integers(1, 40))
def test_how_far_sentences_reach_is_as_stated_plainly(
    make_documents: Callable[..., list[Document]], lengths: list[list[int]], aim: int, longest: int
) -> None:
    sentences = Sentences(Documents.of(make_documents(lengths)), longest=longest)
    places, aims = np.arange(len(sentences)), np.full(len(sentences), aim)
    reach, fit, across = sentences.reach(places, aims), sentences.fit(aims), sentences.fit_across(aims, 1)
    sizes = np.diff(sentences.bounds).tolist()
    numbers = sentences.numbers.tolist()
    for place in places.tolist():
        last, size = place, 0
        while last < sentences.after[place] and size < aim:
            last, size = last + 1, size + sizes[last]
        assert reach[place] == last
        last, size = place + 1, sizes[place]
        while last < sentences.after[place] and size + sizes[last] <= aim:
            last, size = last + 1, size + sizes[last]
        assert fit[place] == last
        last, size = place + 1, sizes[place]
        while last < len(sizes) and (more := sizes[last] + (numbers[last] != numbers[last - 1])) + size <= aim:
            last, size = last + 1, size + more
        assert across[place] == last


@given(steps=st.lists(st.integers(1, 5), max_size=30))
def test_a_walk_goes_from_end_to_beginning(steps: list[int]) -> None:
    lasts = np.minimum(np.arange(len(steps)) + np.array(steps, np.int64), len(steps))
    walked = walk(lasts).tolist()
    assert walked[:1] == [0][: len(steps)]
    assert [int(lasts[place]) for place in walked] == [*walked[1:], len(steps)][: len(walked)]
