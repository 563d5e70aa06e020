"""Several tasks in one stream: drawn by size to the power of 0.7, each in its own order, found again by a cursor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from osbert.data.example import Example, Target
from osbert.data.record_loader import EncodedAhead, MixedLoader, RecordLoader
from osbert.data.step import Cursor, Step


def loader(name: str, count: int, *, batch: int = 4) -> RecordLoader:
    rng = np.random.default_rng(count)

    def example(record: int) -> Example:
        ids = rng.integers(5, 50, size=6)
        nothing = np.zeros(6, bool)
        target = {name: Target(labels=np.array([record]))}
        return Example(ids=ids, segments=nothing.astype(int), words=~nothing, special=nothing, targets=target)

    return RecordLoader(EncodedAhead([example(record)] for record in range(count)), batch=batch, seed=3)


def mixed(sizes: dict[str, int], **more: float) -> MixedLoader:
    return MixedLoader({name: loader(name, count) for name, count in sizes.items()}, **more)  # type: ignore[arg-type]


def seen(step: Step) -> tuple[str, list[int]]:
    ((name, target),) = step.batches[0].targets.items()
    return name, sorted(target.labels.tolist())


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0])
def test_tasks_are_drawn_by_the_power_of_their_size(exponent: float) -> None:
    sizes = {"large": 4000, "middle": 800, "small": 100}
    stream = mixed(sizes, exponent=exponent)
    counts = np.bincount(np.concatenate([stream.draw_loaders(epoch) for epoch in range(20)]), minlength=3)
    powers = np.array(list(sizes.values())) ** exponent
    np.testing.assert_allclose(counts / counts.sum(), powers / powers.sum(), atol=0.02)
    assert stream.steps_per_epoch == 1000 + 200 + 25


def test_within_a_task_the_order_is_its_own() -> None:
    stream, alone = mixed({"a": 10, "b": 30}), loader("a", 10)
    steps = itertools.islice(stream.steps(Cursor()), 60)
    found = [labels for name, labels in map(seen, steps) if name == "a"]
    wanted = [seen(step)[1] for step in itertools.islice(alone.steps(Cursor()), len(found))]
    assert len(found) > 6 and found == wanted


def test_a_cursor_finds_its_place_again() -> None:
    stream = mixed({"a": 10, "b": 30})
    whole = list(itertools.islice(stream.steps(Cursor()), 30))
    for place in (0, 4, stream.steps_per_epoch - 1, stream.steps_per_epoch, 17):
        again = itertools.islice(mixed({"a": 10, "b": 30}).steps(whole[place].cursor), 5)
        assert [seen(step) for step in again] == [seen(step) for step in whole[place + 1 : place + 6]]


def test_epochs_and_seeds_differ() -> None:
    stream, other = mixed({"a": 30, "b": 30}), mixed({"a": 30, "b": 30}, seed=1)
    assert (
        not (stream.draw_loaders(0) == stream.draw_loaders(1)).all()
        and not (stream.draw_loaders(0) == other.draw_loaders(0)).all()
    )
