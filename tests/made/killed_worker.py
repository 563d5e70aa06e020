"""A Ray cluster on this machine, one of whose workers is killed at its work."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AT_WORK = "ray::RankWorker.run_for_rank"
"""The name that Ray gives to a process while it does a task."""


@contextmanager
def killed_worker() -> Iterator[list[int]]:
    """Start Ray with two workers, and kill the first that is seen at work; the list then holds its process id."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False)
    killed: list[int] = []
    ended = threading.Event()
    killer = threading.Thread(target=_kill_one, args=(killed, ended))
    killer.start()
    try:
        yield killed
    finally:
        ended.set()
        killer.join()
        ray.shutdown()


def _descendants(pid: int) -> list[int]:
    """Return the processes below a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            found += [int(path.parent.name), *_descendants(int(path.parent.name))]
    return found


def _kill_one(killed: list[int], ended: threading.Event) -> None:
    """Kill the first worker of this test's cluster that is seen at work."""
    while not killed and not ended.is_set():
        for pid in _descendants(os.getpid()):
            try:
                name = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if name.startswith(AT_WORK):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
        time.sleep(0.01)
