"""A first signal is a wish, a second Ctrl-C an interrupt."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from osbert.training.interruption import Interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_wish(number) -> None:
    before = signal.getsignal(number)
    with Interruption() as wish:
        assert wish.signal is None
        os.kill(os.getpid(), number)
        assert wish.signal == number
    assert signal.getsignal(number) == before


def test_a_second_interrupt_comes_through() -> None:
    with Interruption():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_outside_the_main_thread_nothing_is_caught() -> None:
    found = []

    def work() -> None:
        with Interruption() as wish:
            found.append(wish._before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [{}]
