"""Halves of a batch hold the sequences and the targets of the whole."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.batch import Batch, collate, halves
from osbert.data.example import Example, Target


def example(number: int, length: int, *, ordered: bool) -> Example:
    rng = np.random.default_rng(number)
    chosen = np.flatnonzero(rng.random(length) < 0.3)
    targets = {"word": Target(labels=rng.integers(0, 99, len(chosen)), index=chosen)} if len(chosen) else {}
    if number % 3:
        targets["side"] = Target(labels=np.array([number]), weights=np.array([0.5 + number], np.float32))
    return Example(
        ids=rng.integers(0, 99, length),
        segments=rng.integers(0, 2, length),
        words=np.ones(length, bool),
        special=np.zeros(length, bool),
        order=np.arange(length) if ordered else None,
        positions=rng.integers(0, 99, length) if ordered else None,
        unseen=rng.random(length) < 0.3 if ordered else None,
        record=number,
        targets=targets,
    )


def contents(batch: Batch) -> dict[int, list]:
    """Return all that is known of each record, in plain lists."""
    found = {}
    for place, (record, length, start) in enumerate(
        zip(batch.records.tolist(), batch.lengths, batch.starts.tolist(), strict=True)
    ):
        run = slice(start, start + length)
        columns = [batch.ids[run], batch.positions[run], batch.segments[run]]
        columns += [column[run] for column in (batch.order, batch.unseen) if column is not None]
        targets = {}
        for name, target in batch.targets.items():
            first, last = (start, start + length) if target.per_token else (place, place + 1)
            mine = (target.index >= first) & (target.index < last)
            weights = None if target.weights is None else target.weights[mine].tolist()
            if mine.any():
                targets[name] = ((target.index[mine] - first).tolist(), target.labels[mine].tolist(), weights)
        found[record] = [[column.tolist() for column in columns], targets]
    return found


@given(st.lists(st.integers(1, 12), min_size=1, max_size=9), st.booleans())
def test_together_they_are_the_whole(lengths: list[int], ordered: bool) -> None:
    whole = collate([example(number, length, ordered=ordered) for number, length in enumerate(lengths)])
    parts = halves(whole)
    assert len(parts) == min(2, len(lengths))
    together: dict[int, list] = {}
    for part in parts:
        assert not together.keys() & contents(part).keys()
        together |= contents(part)
        assert part.starts.tolist() == np.cumsum([0, *part.lengths[:-1]]).tolist()
        assert all(len(target.labels) for target in part.targets.values())
    assert together == contents(whole)
    for name, target in whole.targets.items():
        assert sum(part.targets[name].count for part in parts if name in part.targets) == pytest.approx(target.count)
    if len(parts) == 2:
        assert abs(parts[0].tokens - parts[1].tokens) <= max(lengths)


def test_every_column_of_a_batch_is_known() -> None:
    """A new column must be cut as well."""
    per_token = {"ids", "positions", "segments", "order", "unseen", "head_words"}
    known = per_token | {"source", "lengths", "starts", "records", "targets", "together", "whole", "pass_tokens"}
    assert {column.name for column in fields(Batch)} == known


def test_a_single_sequence_stays_whole() -> None:
    (alone,) = halves(collate([example(1, 7, ordered=False)]))
    assert torch.equal(alone.ids, collate([example(1, 7, ordered=False)]).ids)
