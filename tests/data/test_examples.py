"""Examples: columns hold what the single examples hold, in parts, joined, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.example import Example, Target
from osbert.data.examples import Examples


@st.composite
def one(draw: st.DrawFn, record: int = 0) -> Example:
    size = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    ids = rng.integers(0, 1000, size)
    targets = {}
    if draw(st.booleans()):
        index = np.flatnonzero(rng.random(size) < 0.5)
        weights = rng.random(len(index)).astype(np.float32) if draw(st.booleans()) else None
        if len(index):
            targets["pieces"] = Target(labels=ids[index], index=index, weights=weights)
    if draw(st.booleans()):
        targets["whole"] = Target(labels=np.array([record / 2]))
    return Example(
        ids=ids,
        segments=rng.integers(0, 2, size),
        words=rng.random(size) < 0.5,
        special=rng.random(size) < 0.5,
        order=np.arange(size) if draw(st.booleans()) else None,
        positions=rng.integers(0, 50, size) if draw(st.booleans()) else None,
        unseen=rng.random(size) < 0.5 if draw(st.booleans()) else None,
        targets=targets,
        record=record,
        truncated=int(rng.integers(5)),
    )


@st.composite
def several(draw: st.DrawFn) -> list[Example]:
    return [draw(one(record)) for record in range(draw(st.integers(0, 7)))]


def plain(example: Example, *, columns: set[str], weighted: bool) -> list[Any]:
    """Return what an example holds; absent weights and `columns` have their usual values where others have any."""
    size = len(example)
    usual = {"order": np.zeros(size, int), "positions": np.arange(size), "unseen": np.zeros(size, bool)}
    optional = [getattr(example, name) for name in usual]
    optional = [usual[name] if column is None and name in columns else column for name, column in zip(usual, optional)]
    found: list[Any] = [column.tolist() for column in (example.ids, example.segments, example.words, example.special)]
    found += [None if column is None else column.tolist() for column in optional]
    found += [example.record, example.truncated]
    for name, target in sorted(example.targets.items()):
        weights = target.weights
        if weights is None and weighted and name == "pieces":
            weights = np.ones(len(target.labels))
        index = None if target.index is None else target.index.tolist()
        found += [name, target.labels.tolist(), index, None if weights is None else weights.tolist()]
    return found


def contents(examples: Any, like: list[Example]) -> list[Any]:
    """Return what examples hold, as in the company of the examples `like`."""
    names = ("order", "positions", "unseen")
    columns = {name for name in names if any(getattr(example, name) is not None for example in like)}
    weighted = any(target.weights is not None for example in like for target in example.targets.values())
    return [plain(example, columns=columns, weighted=weighted) for example in examples]


@given(examples=several())
def test_columns_hold_the_examples(examples: list[Example]) -> None:
    columns = Examples.of(examples)
    assert Examples.of(columns) is columns
    assert len(columns) == len(examples)
    assert columns.lengths.tolist() == [*map(len, examples)]
    assert contents(columns, examples) == contents(examples, examples)
    with pytest.raises(IndexError):
        columns[len(examples)]


@given(examples=several(), data=st.data())
def test_any_of_them_can_be_taken_in_any_order(examples: list[Example], data: st.DataObject) -> None:
    columns = Examples.of(examples)
    places = data.draw(st.lists(st.integers(0, len(examples) - 1), max_size=9)) if examples else []
    taken = columns.take(np.array(places, np.int64))
    assert contents(taken, examples) == contents([examples[place] for place in places], examples)
    first, last = (data.draw(st.integers(0, len(examples))) for _ in range(2))
    for run in (slice(first, last), slice(last, None), slice(None, None, 2), slice(None, None, -1)):
        assert contents(columns[run], examples) == contents(examples[run], examples)


@given(parts=st.lists(several(), max_size=4))
def test_parts_join_to_the_whole(parts: list[list[Example]]) -> None:
    whole = [example for part in parts for example in part]
    joined = Examples.concatenate([Examples.of(part) for part in parts])
    assert contents(joined, whole) == contents(whole, whole)


def test_a_change_leaves_the_rest_as_it_is() -> None:
    size = 4
    flags = np.zeros(size, bool)
    example = Example(ids=np.arange(size), segments=np.zeros(size, int), words=flags, special=flags)
    columns = Examples.of([example, example])
    changed = columns.with_target(ids=columns.ids + 1, name="x", targets=columns.targets)  # type: ignore[arg-type]
    assert changed.segments is columns.segments and not columns.targets
    assert changed.ids.tolist() == (columns.ids + 1).tolist()


def test_a_target_is_of_tokens_or_of_sequences_not_both() -> None:
    flags = np.zeros(2, bool)
    base = {"ids": np.arange(2), "segments": np.zeros(2, int), "words": flags, "special": flags}
    here = Example(**base, targets={"x": Target(labels=np.array([1]), index=np.array([0]))})
    there = Example(**base, targets={"x": Target(labels=np.array([1]))})
    with pytest.raises(ValueError, match="x has a value per token in one example"):
        Examples.of([here, there])
