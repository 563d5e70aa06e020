"""Rows held out for development: a share of every label, the same each time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from osbert.reading.splits import hold_out, hold_out_known


@given(labels=st.lists(st.sampled_from("aaaaabcd"), max_size=60), share=st.floats(0.05, 0.5))
def test_held_out_rows_are_a_stratified_share(labels: list[str], share: float) -> None:
    held = hold_out(labels, share)
    assert (held == hold_out(labels, share)).all()
    counts, out = Counter(labels), Counter(label for row, label in zip(held, labels) if row)
    usual = {label: min(max(round(share * count), 1), count - 1) for label, count in counts.items()}
    most = min(max(round(share * len(labels)), 1), max(len(labels) - 1, 0))
    assert out.total() == min(sum(usual.values()), most)
    assert all(out[label] <= usual[label] for label in counts)
    # Each label that has rows to spare is represented before another one has two.
    assert max(out.values(), default=0) < 2 or all(out[label] >= min(usual[label], 1) for label in counts)


def test_labels_with_few_rows_do_not_hold_out_half_of_them() -> None:
    held = hold_out([row // 2 for row in range(154)], 0.1)
    assert held.sum() == 15 and (held.reshape(77, 2).sum(1) <= 1).all()
    first, other = (hold_out([row // 2 for row in range(154)] + ["z"] * last, 0.1) for last in (0, 14))
    assert first[76:].any() and other[154:].any()  # neither the first labels of the file alone, nor the rarest
    skewed = hold_out(["a"] * 990 + ["b"] * 7 + ["c"] * 3, 0.1)
    assert [skewed[:990].sum(), skewed[990:997].sum(), skewed[997:].sum()] == [98, 1, 1]


@given(kinds=st.lists(st.sets(st.sampled_from("aaab"), max_size=2), max_size=40), share=st.floats(0.05, 0.5))
def test_every_kind_stays_among_the_rows_to_learn_from(kinds: list[set[str]], share: float) -> None:
    held = hold_out_known(kinds, share)
    learnt = [found for out, found in zip(held, kinds) if not out]
    assert set().union(*learnt) == set().union(*kinds)
    anywhere = hold_out([None] * len(kinds), share, stratified=False)
    assert held.sum() <= anywhere.sum()
    plain = hold_out_known([()] * len(kinds), share)
    assert (plain == anywhere).all()
