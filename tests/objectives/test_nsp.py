"""Next-sentence prediction: where A and B come from, how they are parted, and how often B really follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.objectives.nsp import ELSEWHERE, FOLLOWS, NextSentence
from osbert.text.document import Document
from unique import pairs, texts


class Place(NamedTuple):
    """Where a run of pieces comes from: pieces [start, end) of a document."""

    document: int
    start: int
    end: int


def place(run: np.ndarray, documents: list[Document]) -> Place:
    """Return where a run comes from; it must be one run of one document."""
    assert len(run)
    for number, document in enumerate(documents):
        start = int(run[0]) - int(document.ids[0])
        if 0 <= start < len(document):
            assert document.ids[start : start + len(run)].tolist() == run.tolist()
            return Place(number, start, start + len(run))
    raise AssertionError(f"piece {run[0]} is of no document")


def label(example: Example) -> int:
    return int(example.targets["nsp"].labels[0])


@given(
    lengths=st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=12), min_size=2, max_size=5),
    length=st.integers(5, 70),
    random=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 9),
)
def test_pairs_walk_through_each_document_and_b_is_what_the_label_says(
    packer: Packer,
    make_documents: Callable[..., list[Document]],
    lengths: list[list[int]],
    length: int,
    random: float,
    seed: int,
) -> None:
    documents = make_documents(lengths)
    at = (0, 0)  # the document and the piece that the walk has come to
    for example in pairs(NextSentence(random=random), documents, replace(packer, length=length), seed):
        assert len(example) <= length
        first, second = (place(run, documents) for run in texts(example))
        assert (first.document, first.start) >= at
        at = (first.document, first.end)
        gap = second.start - first.end
        if label(example) == FOLLOWS:
            assert second.document == first.document
            assert 0 <= gap <= example.truncated
            at = (second.document, second.end)
        else:
            assert second.document != first.document
        cut = example.truncated
        assert not cut or len(example) == length


def test_the_walk_leaves_out_only_what_is_counted_as_truncated(packer: Packer, text: list[Document]) -> None:
    examples = pairs(NextSentence(random=0.0), text, packer)
    walked = sum(
        len(first) + (len(second) if label(e) == FOLLOWS else 0) for e in examples for first, second in [texts(e)]
    )
    total = sum(map(len, text))
    lost = sum(example.truncated for example in examples)
    assert total - lost <= walked <= total
    assert lost < 0.3 * total


def test_without_truncation_every_piece_is_in_exactly_one_a_or_true_b(
    packer: Packer, make_documents: Callable[..., list[Document]]
) -> None:
    documents = make_documents([[1] * 200, [1] * 300, [1] * 77])
    examples = pairs(NextSentence(), documents, packer)
    assert not any(example.truncated for example in examples)
    runs = [run for e in examples for run, part in zip(texts(e), ("a", "b")) if part == "a" or label(e) == FOLLOWS]
    assert np.concatenate(runs).tolist() == np.concatenate([document.ids for document in documents]).tolist()


@pytest.mark.parametrize("random", [0.5, 0.3])
def test_the_asked_share_of_seconds_follows_even_though_lone_last_sentences_cannot(
    packer: Packer, text: list[Document], random: float
) -> None:
    labels = [label(example) for seed in range(5) for example in pairs(NextSentence(random=random), text, packer, seed)]
    assert len(labels) > 4_000
    assert abs(np.mean(labels) - random) < 4 * np.sqrt(random * (1 - random) / len(labels))


def test_a_lone_sentence_is_never_said_to_be_followed(
    packer: Packer, make_documents: Callable[..., list[Document]]
) -> None:
    examples = pairs(NextSentence(), make_documents([[5]] * 40), packer)
    assert [label(example) for example in examples] == [ELSEWHERE] * 40


def test_random_seconds_come_from_all_other_documents_and_places(packer: Packer, text: list[Document]) -> None:
    few = text[:5]
    seconds = [
        (place(first, few).document, place(second, few))
        for seed in range(40)
        for example in pairs(NextSentence(random=1.0), few, packer, seed)
        for first, second in [texts(example)]
    ]
    assert {(first, second.document) for first, second in seconds} == {
        (first, second) for first in range(5) for second in range(5) if first != second
    }
    assert len({second.start for _, second in seconds}) > 50


def test_a_sentence_longer_than_a_sequence_is_used_in_parts(
    packer: Packer, make_documents: Callable[..., list[Document]]
) -> None:
    documents = make_documents([[1000], [1000]])
    examples = pairs(NextSentence(), documents, packer)
    assert {label(example) for example in examples} == {FOLLOWS, ELSEWHERE}
    used = {int(piece) for example in examples for run in texts(example) for piece in run}
    assert len(used) > 0.75 * 2000


def test_sequences_are_nearly_full_and_a_tenth_aims_shorter(packer: Packer, text: list[Document]) -> None:
    def lengths(short: float) -> np.ndarray:
        return np.array([len(example) for example in pairs(NextSentence(), text, replace(packer, short=short))])

    assert np.mean(lengths(0.0) > 0.8 * packer.length) > 0.8
    assert np.mean(lengths(0.1)) < np.mean(lengths(0.0))
    assert np.mean(lengths(1.0)) < 0.85 * np.mean(lengths(0.0))


@pytest.mark.parametrize("short", [0.1, 0.4])
def test_the_counted_share_of_short_pairs_is_the_one_asked_for(
    packer: Packer, make_documents: Callable[..., list[Document]], short: float
) -> None:
    """Sentences of one piece can be gathered to any length exactly; an aim at the full length is not short."""
    documents = make_documents([[1] * 25_000, [1] * 25_000])
    longest = packer.length - 3
    lengths = [len(example) - 3 for example in pairs(NextSentence(), documents, replace(packer, short=short))]
    count = np.sum(np.array(lengths) < longest) - 2  # the ends of the two documents are short, too
    share = short * (longest - 2) / (longest - 1)
    assert len(lengths) > 800
    assert abs(count / len(lengths) - share) < 4 * np.sqrt(share * (1 - share) / len(lengths))


def test_parts_of_one_source_are_no_other_documents(packer: Packer, text: list[Document]) -> None:
    parts = [replace(document, source=number // 3) for number, document in enumerate(text[:9])]
    for seed in range(5):
        for example in pairs(NextSentence(random=1.0), parts, packer, seed):
            first, second = (place(run, parts) for run in texts(example))
            assert (parts[first.document].source == parts[second.document].source) == (label(example) == FOLLOWS)
    with pytest.raises(ValueError, match="two sources"):
        pairs(NextSentence(), parts[:3], packer)


def test_the_length_of_b_hardly_gives_the_label_away(
    packer: Packer, make_documents: Callable[..., list[Document]]
) -> None:
    """Even when many documents are mere titles: the best threshold on the length is little better than a coin."""
    examples = pairs(NextSentence(), make_documents([*[[3, 4]] * 60, *[[6] * 80] * 60]), packer)
    lengths = np.array([int(example.segments.sum()) for example in examples])
    labels = np.array([label(example) for example in examples])
    right = [np.mean((lengths >= threshold) == labels) for threshold in range(lengths.min(), lengths.max() + 1)]
    assert max(*right, *(1 - share for share in right)) < 0.6


def test_pairs_repeat_for_the_same_generator(packer: Packer, text: list[Document]) -> None:
    one, same, other = (
        [example.ids.tolist() for example in pairs(NextSentence(), text, packer, seed)] for seed in (0, 0, 1)
    )
    assert one == same != other


def test_one_document_or_an_impossible_share_is_refused(packer: Packer, text: list[Document]) -> None:
    with pytest.raises(ValueError, match="two documents"):
        pairs(NextSentence(), text[:1], packer)
    with pytest.raises(ValueError, match="random"):
        NextSentence(random=1.1)
