"""Packing: the layout of a sequence, the fit to the longest length, and that spans use every piece once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.example import Example
from osbert.data.pack import Packer, PieceRun, Sentences, trim_lengths
from osbert.text.document import Document, Documents
from osbert.text.tokenizer import Tokenizer

sizes = st.integers(0, 40)
rooms = st.integers(5, 40)


def run(first: int, size: int) -> PieceRun:
    ids = np.arange(first, first + size)
    return PieceRun(ids, ids % 3 == 0)


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
    left, right = map(int, trim_lengths(np.array(first), np.array(second), length - 3))
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
    kept = trim_lengths(np.array([first]), np.array([second]), room)
    assert [int(*column) for column in kept] == [left, right]


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


@given(
    lengths=st.lists(st.lists(st.integers(0, 40), max_size=8), min_size=1, max_size=6),
    length=st.integers(5, 60),
    short=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 9),
)
def test_full_spans_go_on_in_the_next_document_after_a_separator(
    tokenizer: Tokenizer,
    make_documents: Callable[..., list[Document]],
    lengths: list[list[int]],
    length: int,
    short: float,
    seed: int,
) -> None:
    documents = make_documents(lengths)
    packer = Packer(tokenizer=tokenizer, length=length, short=short, cross_documents=True)
    examples = list(packer.spans(documents, np.random.default_rng(seed)))
    texts = [_texts(example, tokenizer) for example in examples]
    everything = [piece for document in documents for piece in document.ids.tolist()]
    assert [piece for runs in texts for run in runs for piece in run] == everything
    ends = {int(document.ids[-1]) for document in documents if len(document)}
    for example, runs in zip(examples, texts):
        assert len(example) <= length
        assert not example.segments.any() and not example.truncated
        assert all(runs) and all(run[-1] in ends for run in runs[:-1])
        assert not any(ends & {*run[:-1]} for run in runs)
    if not short:
        # A sequence ends only where the next sentence, with a separator before another document's, does not fit.
        sentences = _sentences(documents, longest=length - 2)
        for example, runs, after in zip(examples, texts, texts[1:]):
            assert len(example) + sentences[after[0][0]] + (runs[-1][-1] in ends) > length


def _texts(example: Example, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the pieces between the specials of a sequence."""
    ids = example.ids.tolist()
    assert ids[0] == tokenizer.cls and ids[-1] == tokenizer.sep
    assert example.special.tolist() == [piece in (tokenizer.cls, tokenizer.sep) for piece in ids]
    borders = np.flatnonzero(example.special).tolist()
    return [ids[start + 1 : end] for start, end in itertools.pairwise(borders)]


def _sentences(documents: list[Document], *, longest: int) -> dict[int, int]:
    """Return the length of each sentence, or part of a long one, by its first piece."""
    sentences = Sentences(Documents.of(documents), longest=longest)
    return {
        int(sentences.documents.ids[start]): end - start for start, end in itertools.pairwise(sentences.bounds.tolist())
    }


def test_a_full_span_of_three_documents_word_by_word(
    tokenizer: Tokenizer, make_documents: Callable[..., list[Document]]
) -> None:
    documents = make_documents([[3, 2], [4], [1, 3]])
    packer = Packer(tokenizer=tokenizer, length=12, short=0.0, cross_documents=True)
    first, second = packer.spans(documents, np.random.default_rng(0))
    cls, sep = tokenizer.cls, tokenizer.sep
    assert first.ids.tolist() == [cls, 5, 6, 7, 8, 9, sep, 10, 11, 12, 13, sep]
    assert second.ids.tolist() == [cls, 14, 15, 16, 17, sep]
    words = np.concatenate([document.words for document in documents])
    assert np.concatenate([first.words[~first.special], second.words[~second.special]]).tolist() == words.tolist()


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
