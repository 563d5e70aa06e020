"""Processes of one start find each other in a store in which an earlier start, by torchrun, has left its keys."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch import distributed

from osbert.training.distributed import START, fresh_store, open_agent_store

SHORT = timedelta(seconds=20)


def start(store: distributed.Store, size: int) -> list[distributed.Store]:
    """Let the processes of a start, here threads, meet; the first one comes last."""
    with ThreadPoolExecutor(size) as pool:
        others = [pool.submit(fresh_store, store, rank, size, SHORT) for rank in range(1, size)]
        first = pool.submit(fresh_store, store, 0, size, SHORT)
        return [first.result(), *(other.result() for other in others)]


def test_each_start_has_a_part_of_its_own() -> None:
    """Of the same number of processes, of fewer, and of more."""
    store = distributed.HashStore()
    for number, size in enumerate((3, 3, 2, 4)):
        parts = start(store, size)
        assert not parts[0].check(["address"])
        parts[0].set("address", str(number))
        assert {part.get("address") for part in parts} == {str(number).encode()}


def test_a_process_that_came_to_a_dead_start_moves_on() -> None:
    """The first process of a start was killed before it answered; another one asks, and waits for the next start."""
    store = distributed.HashStore()
    store.set(START, "dead")
    found: list[distributed.Store] = []
    other = threading.Thread(target=lambda: found.append(fresh_store(store, 1, 2, SHORT)))
    other.start()
    while not store.check(["osbert/dead/asks/1"]):
        pass
    first = fresh_store(store, 0, 2, SHORT)
    other.join()
    first.set("address", "here")
    assert found[0].get("address") == b"here"


@pytest.mark.parametrize("rank", [0, 1])
def test_nobody_comes(rank: int) -> None:
    with pytest.raises(RuntimeError, match="did not start in time"):
        fresh_store(distributed.HashStore(), rank, 2, timedelta(seconds=0.1))


def test_a_store_of_its_own_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert open_agent_store(SHORT) is None
