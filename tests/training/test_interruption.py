"""A first signal is a wish, a second Ctrl-C an interrupt."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from osbert.training.interruption import Interruption, StopRequest, sigterm_as_exit


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
            found.extend(wish._before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [{}]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_work_that_can_be_done_again_is_broken_off(number, status) -> None:
    with Interruption() as wish:
        with pytest.raises(StopRequest), wish.at_once():
            os.kill(os.getpid(), number)
            pytest.fail("went on")
        assert (wish.signal, wish.status) == (number, status)
        os.kill(os.getpid(), signal.SIGTERM)  # outside the block it is a wish again
        with pytest.raises(StopRequest), wish.at_once():
            pytest.fail("began")


def test_work_that_nobody_stops_goes_through() -> None:
    with Interruption() as wish, wish.at_once():
        assert wish.signal is None
    assert wish.status == 0


def test_sigterm_raises_inside_the_block_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, sigterm_as_exit():
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("went on")
    assert ended.value.code == 143 and signal.getsignal(signal.SIGTERM) == before
