"""RecordLoader: every record once an epoch, the same stream whether sequences are ready or made on demand."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.batch import Batch, halves, micro_batches
from osbert.data.example import Example, Target
from osbert.data.record_loader import EncodedAhead, EncodedRecords, OnDemand, RecordLoader
from osbert.data.step import Cursor, Step


def group(record: int) -> list[Example]:
    """Return one to three sequences of a record, of several lengths."""
    made = []
    for number in range(1 + record % 3):
        row = np.full(1 + (3 * record + number) % 5, record)
        flag = np.zeros(len(row), dtype=bool)
        targets = {"x": Target(labels=row[:1])} if number == 0 else {}
        made.append(Example(ids=row, segments=row * 0, words=flag, special=flag, record=record, targets=targets))
    return made


def encoded(count: int, *, lazily: bool = False) -> EncodedRecords:
    return OnDemand(range(count), group) if lazily else EncodedAhead(map(group, range(count)))


def plain(steps: Iterator[Step], count: int) -> list[Any]:
    def contents(batch: Batch) -> list[Any]:
        target = batch.targets.get("x")
        labels = [] if target is None else [target.labels.tolist(), target.index.tolist()]
        return [batch.ids.tolist(), batch.lengths, batch.records.tolist(), batch.together, labels]

    return [[[contents(b) for b in step.batches], step.cursor] for step in itertools.islice(steps, count)]


@given(
    count=st.integers(1, 30),
    batch=st.integers(1, 12),
    epoch=st.integers(0, 3),
    skipped=st.integers(0, 9),
    lazily=st.booleans(),
)
def test_every_record_is_seen_once_an_epoch(count: int, batch: int, epoch: int, skipped: int, lazily: bool) -> None:
    loader = RecordLoader(encoded(count, lazily=lazily), batch=batch)
    steps = list(itertools.islice(loader.steps(Cursor(epoch=epoch)), loader.steps_per_epoch))
    sizes = [len(set(step.batches[0].records.tolist())) for step in steps]
    assert sizes[:-1] == [batch] * (len(sizes) - 1)
    seen = Counter(record for step in steps for record in step.batches[0].records.tolist())
    assert seen == {record: 1 + record % 3 for record in range(count)}
    assert steps[-1].cursor == Cursor(epoch=epoch + 1)
    stream = loader.steps(Cursor())
    cursor = ([Cursor()] + [step.cursor for step in itertools.islice(stream, skipped)])[-1]
    again = RecordLoader(encoded(count, lazily=not lazily), batch=batch).steps(cursor)
    assert plain(stream, 3) == plain(again, 3)


def test_orders_differ_by_epoch_and_seed() -> None:
    def order(epoch: int, seed: int) -> list[int]:
        steps = RecordLoader(encoded(30), batch=1, seed=seed).steps(Cursor(epoch=epoch))
        return [int(step.batches[0].records[0]) for step in itertools.islice(steps, 30)]

    assert order(0, 0) == order(0, 0) != order(1, 0) != order(0, 1)
    step = next(RecordLoader(encoded(30), batch=10, micro_tokens=8).steps(Cursor()))
    assert len(step.batches) > 1 and max(batch.tokens for batch in step.batches) <= 8
    with pytest.raises(ValueError, match="no examples"):
        RecordLoader(encoded(0), batch=1)


@given(
    records=st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True),
    tokens=st.integers(0, 30),
)
def test_records_that_must_stay_together_are_never_parted(records: list[int], tokens: int) -> None:
    examples = [example for record in records for example in group(record)]
    batches = micro_batches(examples, tokens, together=True)
    parts = [half for batch in batches for half in halves(batch)]
    for found in (batches, parts):
        seen = Counter(record for batch in found for record in set(batch.records.tolist()))
        assert seen == Counter(records)
        assert sum(batch.tokens for batch in found) == sum(map(len, examples))
        for batch in found:
            assert batch.together and list(batch.lengths) == sorted(batch.lengths, reverse=True)
            target = batch.targets["x"]
            assert batch.records[target.index].tolist() == target.labels.tolist()
            assert len(target.labels) == len(set(batch.records.tolist()))
    for batch in batches:
        assert not tokens or batch.tokens <= tokens or len(set(batch.records.tolist())) == 1
