"""Rows held out for development: a share of every label, the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.reading.splits import deal_folds, hold_out, hold_out_known


@given(labels=st.lists(st.sampled_from("aaaaab"), max_size=60), share=st.floats(0.05, 0.5))
def test_held_out_rows_are_a_stratified_share(labels: list[str], share: float) -> None:
    held = hold_out(labels, share)
    assert (held == hold_out(labels, share)).all()
    for label in set(labels):
        count = labels.count(label)
        out = sum(out for out, one in zip(held, labels) if one == label)
        assert out == (min(max(round(share * count), 1), count - 1))


@given(kinds=st.lists(st.sets(st.sampled_from("aaab"), max_size=2), max_size=40), share=st.floats(0.05, 0.5))
def test_every_kind_stays_among_the_rows_to_learn_from(kinds: list[set[str]], share: float) -> None:
    held = hold_out_known(kinds, share)
    learnt = [found for out, found in zip(held, kinds) if not out]
    assert set().union(*learnt) == set().union(*kinds)
    anywhere = hold_out([None] * len(kinds), share, stratified=False)
    assert held.sum() <= anywhere.sum()
    plain = hold_out_known([()] * len(kinds), share)
    assert (plain == anywhere).all()


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
