"""Collation: what lies where in a batch, and that micro-batches are the batch in parts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.batch import Batch, collate, micro_batches
from osbert.data.example import Example, Target


@st.composite
def example(draw: st.DrawFn, record: int = 0) -> Example:
    size = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    ids = rng.integers(0, 1000, size)
    targets = {"whole": Target(labels=np.array([record % 2]))}
    if draw(st.booleans()):
        index = np.flatnonzero(rng.random(size) < 0.5)
        targets["pieces"] = Target(labels=ids[index].astype(np.int32), index=index)
    if draw(st.booleans()):
        targets["number"] = Target(labels=np.array([record / 2]), weights=np.array([record + 1.0]))
    return Example(
        ids=ids,
        segments=rng.integers(0, 2, size),
        words=np.ones(size, dtype=bool),
        special=np.zeros(size, dtype=bool),
        order=np.arange(size) if draw(st.booleans()) else None,
        positions=rng.integers(0, 50, size) if draw(st.booleans()) else None,
        unseen=rng.random(size) < 0.5 if draw(st.booleans()) else None,
        targets=targets,
        record=record,
    )


@st.composite
def some_examples(draw: st.DrawFn) -> list[Example]:
    return [draw(example(record)) for record in range(draw(st.integers(1, 8)))]


@given(examples=some_examples())
def test_every_sequence_lies_whole_at_its_start(examples: list[Example]) -> None:
    batch = collate(examples)
    by_record = {example.record: example for example in examples}
    assert sorted(batch.records.tolist()) == sorted(by_record)
    assert list(batch.lengths) == sorted(batch.lengths, reverse=True)
    assert batch.tokens == len(batch.ids) == sum(map(len, examples))
    for record, start, length in zip(batch.records.tolist(), batch.starts.tolist(), batch.lengths):
        source, run = by_record[record], slice(start, start + length)
        assert batch.ids[run].tolist() == source.ids.tolist()
        assert batch.segments[run].tolist() == source.segments.tolist()
        positions = np.arange(len(source)) if source.positions is None else source.positions
        assert batch.positions[run].tolist() == positions.tolist()
        for column, given_ in ((batch.order, source.order), (batch.unseen, source.unseen)):
            assert column is None or column[run].tolist() == ([0] * len(source) if given_ is None else given_.tolist())
    assert (batch.order is None) == all(example.order is None for example in examples)
    assert (batch.unseen is None) == all(example.unseen is None for example in examples)


def test_a_batch_knows_whether_its_columns_count_up() -> None:
    flags, zeros = np.zeros(4, bool), np.zeros(4, int)
    longer = Example(ids=zeros, segments=zeros, words=flags, special=flags)
    batch = collate([longer, Example(ids=zeros[:2], segments=zeros[:2], words=flags[:2], special=flags[:2])])
    assert batch.consecutive and not batch.causal
    assert batch.places.tolist() == [0, 1, 2, 3, 0, 1]
    assert replace(batch, order=batch.places).causal
    back = torch.tensor([3, 2, 1, 0, 1, 0])
    turned = replace(batch, positions=back, order=back)
    assert not turned.consecutive and not turned.causal
    moved = replace(batch, order=batch.places).to(torch.device("meta"))  # where nothing can be compared
    assert moved.consecutive and moved.causal and moved.order.device.type == "meta"


@given(examples=some_examples())
def test_indices_of_targets_point_to_what_the_labels_label(examples: list[Example]) -> None:
    batch = collate(examples)
    whole = batch.targets["whole"]
    assert not whole.per_token
    assert whole.labels.dtype == torch.int64
    assert whole.labels.tolist() == (batch.records[whole.index] % 2).tolist()
    assert whole.count == len(examples)
    if "pieces" in batch.targets:
        pieces = batch.targets["pieces"]
        assert pieces.per_token
        assert pieces.labels.dtype == torch.int64
        assert batch.ids[pieces.index].tolist() == pieces.labels.tolist()
    if "number" in batch.targets:
        number = batch.targets["number"]
        records = batch.records[number.index]
        assert number.labels.dtype == torch.float32
        assert number.labels.tolist() == (records / 2).tolist()
        assert number.weights is not None
        assert number.weights.tolist() == (records + 1.0).tolist()
        assert number.count == float(number.weights.sum())


@given(examples=some_examples(), tokens=st.integers(1, 40))
def test_micro_batches_are_the_batch_in_parts(examples: list[Example], tokens: int) -> None:
    parts, whole = micro_batches(examples, tokens), collate(examples)
    assert all(part.tokens <= tokens or len(part.lengths) == 1 for part in parts)
    assert all(one.tokens + other.lengths[0] > tokens for one, other in itertools.pairwise(parts))
    assert [record for part in parts for record in part.records.tolist()] == whole.records.tolist()
    assert _contents(parts) == _contents([whole])
    assert _contents(micro_batches(examples, 0)) == _contents([whole])


def test_nothing_makes_no_batch() -> None:
    assert micro_batches([], 0) == micro_batches([], 9) == []


def _contents(batches: list[Batch]) -> tuple[list, dict]:
    sequences = sorted(
        (record, batch.ids[start : start + length].tolist())
        for batch in batches
        for record, start, length in zip(batch.records.tolist(), batch.starts.tolist(), batch.lengths)
    )
    totals: dict[str, tuple[float, list]] = {}
    for batch in batches:
        for name, target in batch.targets.items():
            count, labels = totals.get(name, (0.0, []))
            totals[name] = (count + target.count, sorted(labels + target.labels.tolist()))
    return sequences, totals
