"""Sentence order: consecutive texts, half of them swapped, every piece used, and no telling by the lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.objectives.sentence_order import KEPT, SWAPPED, SentenceOrder
from osbert.text.document import Document
from unique import pairs, texts


def label(example: Example) -> int:
    return int(example.targets["sentence_order"].labels[0])


@given(
    lengths=st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=12), min_size=1, max_size=5),
    length=st.integers(5, 70),
    swapped=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 9),
)
def test_pairs_are_consecutive_texts_of_one_document_in_the_order_the_label_says(
    packer: Packer,
    make_documents: Callable[..., list[Document]],
    lengths: list[list[int]],
    length: int,
    swapped: float,
    seed: int,
) -> None:
    documents = make_documents(lengths)
    home = {int(piece): number for number, document in enumerate(documents) for piece in document.ids}
    at = 0  # the piece that the walk has come to; pieces count through all documents
    for example in pairs(SentenceOrder(swapped=swapped), documents, replace(packer, length=length), seed):
        assert len(example) <= length
        assert label(example) == SWAPPED if swapped == 1 else label(example) == KEPT or swapped > 0
        first, second = texts(example) if label(example) == KEPT else texts(example)[::-1]
        assert len(first) and len(second)
        for run in (first, second):
            assert np.diff(run).tolist() == [1] * (len(run) - 1)
        assert home[int(first[0])] == home[int(second[-1])]
        assert at <= first[0] and first[-1] < second[0]
        assert second[0] - first[-1] - 1 <= example.truncated
        at = int(second[-1])


def test_without_truncation_every_piece_is_used_once_but_those_that_stand_alone(
    packer: Packer, make_documents: Callable[..., list[Document]]
) -> None:
    documents = make_documents([[1] * 200, [1] * 301, [1], [7]])
    examples = pairs(SentenceOrder(), documents, packer)
    assert not any(example.truncated for example in examples)
    used = np.sort(np.concatenate([run for example in examples for run in texts(example)]))
    everything = np.concatenate([document.ids for document in documents])
    alone = set(everything.tolist()) - set(used.tolist())
    assert len(used) == len(everything) - len(alone)
    assert int(documents[2].ids[0]) in alone and len(alone) <= 3  # a last piece of the long ones may be left alone


def test_a_lone_sentence_is_parted_at_a_word(packer: Packer, make_documents: Callable[..., list[Document]]) -> None:
    documents = make_documents([[9]] * 60)
    examples = pairs(SentenceOrder(), documents, packer)
    assert len(examples) == 60
    starts = {int(second[0]) for e in examples for second in [texts(e)[1 if label(e) == KEPT else 0]]}
    words = {int(piece) for document in documents for piece in document.ids[1:][document.words[1:]]}
    assert starts <= words
    assert len({int(piece) % 9 for piece in starts}) > 3


@pytest.mark.parametrize("swapped", [0.5, 0.2])
def test_the_asked_share_is_swapped(packer: Packer, text: list[Document], swapped: float) -> None:
    labels = [label(e) for seed in range(3) for e in pairs(SentenceOrder(swapped=swapped), text, packer, seed)]
    assert len(labels) > 2_000
    assert abs(np.mean(labels) - swapped) < 4 * np.sqrt(swapped * (1 - swapped) / len(labels))


def test_the_lengths_hardly_give_the_order_away(packer: Packer, text: list[Document]) -> None:
    examples = [e for seed in range(3) for e in pairs(SentenceOrder(), text, packer, seed)]
    gaps = np.array([len(first) - len(second) for first, second in map(texts, examples)])
    labels = np.array([label(example) for example in examples])
    right = [np.mean((gaps >= threshold) == labels) for threshold in range(gaps.min(), gaps.max() + 1)]
    assert max(*right, *(1 - share for share in right)) < 0.58


def test_one_document_is_enough_and_an_impossible_share_is_refused(packer: Packer, text: list[Document]) -> None:
    assert SentenceOrder.fewest_documents == 1
    assert pairs(SentenceOrder(), text[:1], packer)
    with pytest.raises(ValueError, match="swapped"):
        SentenceOrder(swapped=1.1)
