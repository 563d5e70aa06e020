"""Rows held out for development: a share of every label, the same each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osbert.reading.splits import hold_out, hold_out_known


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
