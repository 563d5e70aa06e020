"""Folds of rows: as many rows and of each label as can be, and a group in one of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.tasks import Record
from osbert_lab.study.folds import deal_folds, describe_repeats


@given(labels=st.lists(st.sampled_from("aaaabbc"), min_size=12, max_size=80), folds=st.integers(2, 6))
def test_folds_have_as_many_rows_and_of_each_label_as_can_be(labels: list[str], folds: int) -> None:
    found = deal_folds(labels, folds)
    assert (found == deal_folds(labels, folds)).all()
    for label in {*labels}:
        counts = [sum(one == label for one, own in zip(labels, found) if own == fold) for fold in range(folds)]
        assert max(counts) - min(counts) <= 1
    sizes = np.bincount(found, minlength=folds)
    assert sizes.sum() == len(labels) and sizes.max() - sizes.min() <= len({*labels})


@given(groups=st.lists(st.integers(0, 9), min_size=30, max_size=80), folds=st.integers(2, 3))
def test_a_group_is_in_one_fold(groups: list[int], folds: int) -> None:
    labels = ["a" if group % 2 else "b" for group in groups]
    if len({*groups}) < folds:
        return
    found = deal_folds(labels, folds, groups=groups)
    owners = {group: {fold for own, fold in zip(groups, found.tolist()) if own == group} for group in groups}
    assert all(len(own) == 1 for own in owners.values()) and len({*found.tolist()}) == folds


def test_fewer_groups_than_folds_cannot_be_dealt() -> None:
    with pytest.raises(ValueError):
        deal_folds("abab", 3, groups=[0, 0, 1, 1])


def test_texts_in_several_folds_are_told() -> None:
    rows = [Record(number=number, texts=(text,)) for number, text in enumerate(["a film", "A  film", "a play", "b"])]
    told = describe_repeats(rows, np.array([0, 1, 0, 1]))
    assert told.startswith("2 of 4 rows have the text of a row in another fold")
    assert describe_repeats(rows, np.array([0, 0, 1, 1])) == ""
    assert describe_repeats([*rows, *rows[2:3] * 200], np.array([0, 1, *[0] * 202])) == ""
