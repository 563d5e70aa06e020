"""Threads that sleep while they wait, child processes that are spared Ctrl-C, memory that is not kept for reuse."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

VARIABLE = "OMP_WAIT_POLICY"


def let_threads_sleep() -> None:
    """Set OMP_WAIT_POLICY to PASSIVE, unless it is set, or torch is loaded: OpenMP reads it at that moment only.

    Threads that spin take cores from other processes, such as osbert's own loaders and workers.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault(VARIABLE, "PASSIVE")


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
    from multiprocessing import parent_process  # here: osbert itself imports this file

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def return_memory() -> None:
    """Return freed memory to the system. glibc keeps it for reuse (processor.keep_memory); other systems do not."""
    import ctypes  # here: osbert itself imports this file

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
