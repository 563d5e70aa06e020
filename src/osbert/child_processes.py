"""What child processes need: to be spared Ctrl-C, which their parent handles, and to end with their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def holding_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back inside the block, and for ever in the processes that the block starts.

    A terminal sends it to all processes of a command, and a child that is still importing would print a traceback. A
    child inherits what its parent blocks, so this holds from its first instruction on. On Windows it does nothing.
    """
    if not hasattr(signal, "pthread_sigmask"):  # pragma: no cover
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a Ctrl-C that came meanwhile is raised here


def end_with_parent() -> None:
    """End this process when its parent is gone: a parent that is killed cannot end its children."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
