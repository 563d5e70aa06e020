"""Threads: one for small work, all for large products, and afterwards as before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from osbert.models.fast import threads
from osbert.models.fast.linear import Linear
from osbert.models.fast.threads import threads_for, threads_for_batch


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have two threads, which sleep between their tasks."""
    monkeypatch.setattr(threads, "ALONE", 100)
    monkeypatch.setattr(threads, "ONE_THREAD_TOKENS", 10)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_one_thread_does_a_small_product() -> None:
    with threads_for(100):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with threads_for(101):
        assert torch.get_num_threads() == 2


def test_one_thread_does_a_small_batch_but_for_its_large_products() -> None:
    with threads_for_batch(10):
        assert torch.get_num_threads() == 1
        with threads_for(101):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
    with threads_for_batch(11):
        assert torch.get_num_threads() == 2
        with threads_for(100):
            assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_an_error_leaves_the_threads_as_they_were() -> None:
    with pytest.raises(ZeroDivisionError), threads_for_batch(1), threads_for(1000):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2
    with threads_for(1000):
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize("width, wanted", [(5, 1), (6, 2)])
def test_a_layers_products_choose_for_themselves(monkeypatch: pytest.MonkeyPatch, width: int, wanted: int) -> None:
    seen = []
    working = threads._working

    def listen(count: int):
        seen.append(count)
        return working(count)

    monkeypatch.setattr(threads, "_working", listen)
    layer = Linear(width, 5)
    rows = torch.ones(4, width, requires_grad=True)
    out = layer(rows)
    assert seen == [wanted]
    out.sum().backward()
    assert seen == [wanted] * 2


@pytest.mark.parametrize("sleeping, load, expected", [(False, 3.0, True), (False, 0.5, False), (True, 3.0, False)])
def test_a_busy_machine_is_reported_once_if_threads_spin(
    monkeypatch: pytest.MonkeyPatch, sleeping: bool, load: float, expected: bool
) -> None:
    monkeypatch.setattr(threads, "SLEEPING", sleeping)
    monkeypatch.setattr(threads, "_remarks", [])
    monkeypatch.setattr(threads.os, "getloadavg", lambda: (load, load, load), raising=False)
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 2)
    assert ("OMP_WAIT_POLICY" in threads.spin_remark()) is expected
    assert not threads.spin_remark()
