"""Reordering: every permutation is a class, texts keep their pieces, and the segments are whole sentences."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.data.pack import Packer
from osbert.text.document import Document
from osbert_lab.ernie.reorder import MOST, Reorder, class_of, order_of
from unique import pairs


def test_every_permutation_has_its_class() -> None:
    orders = [list(order) for count in range(1, MOST + 1) for order in itertools.permutations(range(count))]
    assert [class_of(order) for order in orders] == list(range(len(orders)))
    assert [order_of(number) for number in range(len(orders))] == orders


@settings(max_examples=25)
@given(
    lengths=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=9), min_size=1, max_size=4),
    parts=st.integers(2, 4),
    seed=st.integers(0, 9),
)
def test_the_class_gives_the_text_back(
    packer: Packer,
    make_documents: Callable[..., list[Document]],
    lengths: list[list[int]],
    parts: int,
    seed: int,
) -> None:
    documents = make_documents(lengths)
    starts = {int(one.ids[bound]) for one in documents for bound in one.sentences[:-1]}
    starts_words = {int(piece) for one in documents for piece in one.ids[one.words]}
    seen: list[int] = []
    for example in pairs(Reorder(parts=parts), documents, replace(packer, short=0), seed):
        pieces, label = example.ids[~example.special], int(example.targets["reorder"].labels[0])
        order = order_of(label)
        assert len(order) <= parts
        # Pieces of a segment are consecutive, and so each break is the border of two segments.
        runs = np.split(pieces, 1 + np.flatnonzero(np.diff(pieces) != 1))
        back = np.sort(pieces)
        assert (np.diff(back) == 1).all()
        firsts = sorted(int(part[0]) for part in runs)
        assert all(first in starts for first in firsts[1:])
        if len(runs) == len(order):  # else two segments lie in their old order
            assert [firsts.index(int(part[0])) for part in runs] == order
        assert (pieces == back).all() == (order == sorted(order))
        assert [int(piece) in starts_words for piece in pieces] == example.words[~example.special].tolist()
        seen += back.tolist()
    assert sorted(seen) == [piece for document in documents for piece in document.ids.tolist()]


def test_classes_are_as_frequent_as_they_should_be(packer: Packer, text: list[Document]) -> None:
    """Numbers of segments are equally frequent, and so are the permutations of a number; of a fixed seed."""
    found = [
        int(example.targets["reorder"].labels[0])
        for seed in range(3)
        for example in pairs(Reorder(), text, replace(packer, length=120, short=0), seed)
        if example.targets["reorder"].labels[0] > 0
    ]
    counts = np.bincount(found, minlength=9)
    two, three = counts[1:3], counts[3:9]
    for each in (two, three):
        assert ((each - each.mean()) ** 2 / each.mean()).sum() < 20  # chi-square, 5 degrees at most
    assert 0.3 < three.sum() / two.sum() < 1.3  # texts of two sentences have no three segments


def test_short_texts_are_counted_as_having_nothing_to_reorder(packer: Packer, text: list[Document]) -> None:
    shares = {}
    for length in (16, 400):
        examples = pairs(Reorder(), text, replace(packer, length=length, short=0), 0)
        shares[length] = [float(counted[:-1]) for _, counted, _ in Reorder().rates(examples)]
        assert len(shares[length]) == 3 and sum(shares[length]) == pytest.approx(100, abs=0.05)
    assert shares[16][0] > 70 and shares[400] == pytest.approx([33, 33, 33], abs=12)


@pytest.mark.parametrize("parts", [1, MOST + 1])
def test_numbers_of_segments_out_of_range_are_refused(parts: int) -> None:
    with pytest.raises(ValueError, match=str(parts)):
        Reorder(parts=parts)


def test_short_texts_are_cut_between_words(packer: Packer, text: list[Document]) -> None:
    objective, short = Reorder(cuts="words"), replace(packer, length=16, short=0)
    examples = pairs(objective, text, short, 0)
    counted = [float(number[:-1]) for _, number, _ in objective.rates(examples)]
    assert counted == pytest.approx([33, 33, 33], abs=5)
    starts_words = {int(piece) for one in text for piece in one.ids[one.words]}
    for example in examples:
        pieces, order = example.ids[~example.special], order_of(int(example.targets["reorder"].labels[0]))
        # Pieces of a segment are consecutive, and a segment other than the first of the text starts with a word.
        runs = np.split(pieces, 1 + np.flatnonzero(np.diff(pieces) != 1))
        firsts = sorted(int(run[0]) for run in runs)
        assert all(first in starts_words for first in firsts[1:])
        assert len(runs) < len(order) or [firsts.index(int(run[0])) for run in runs] == order


def test_little_to_reorder_is_remarked(packer: Packer, text: list[Document]) -> None:
    short, rng = replace(packer, length=16, short=0), np.random.default_rng(0)
    remark = Reorder().idle(Reorder().examples(text, short, rng))
    assert "nothing to reorder" in remark and "reorder.cuts = words" in remark
    for objective, packed in ((Reorder(cuts="words"), short), (Reorder(), replace(packer, length=400, short=0))):
        assert not objective.idle(objective.examples(text, packed, rng))
