"""osbert commands in processes of their own, which fill run folders; several may be at work at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from osbert.errors import UserError
from osbert.runs.study.runner import StudyTrial

LOG = "log.txt"
ERROR = "error: "
"""What the command line puts before the message of an error."""


class ChildCommands:
    """Runs trials whose settings are the words of an osbert command: `work` and `stop` of a Study."""

    def __init__(self, together: int) -> None:
        """Divide the cores, or the threads of OMP_NUM_THREADS, by the number of commands that run `together`."""
        threads = os.environ.get("OMP_NUM_THREADS", "")
        self.threads = max(1, (int(threads) if threads.isdecimal() else os.cpu_count() or 1) // together)
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock = threading.Lock()
        self.stopping = False

    def work(self, trial: StudyTrial) -> None:
        """Run a command to its end; its output goes into a file beside the run folder.

        Raises UserError, which names that file, when it fails.
        """
        trial.folder.mkdir(parents=True, exist_ok=True)
        path = trial.folder.with_name(f"{trial.folder.name}-{LOG}")
        with path.open("wb") as log:
            with self.lock:
                if self.stopping:
                    return
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "osbert", *trial.settings],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "OMP_NUM_THREADS": str(self.threads)},
                )
                self.running.add(process)
            status = process.wait()
        with self.lock:
            self.running.discard(process)
        if status and not self.stopping:
            raise UserError(f"{ending(status)}: {last_words(path)} Its output is in {path}.", code="child-failed")

    def stop(self) -> None:
        """End those at work, which save their state first; no other begins."""
        with self.lock:
            self.stopping = True
            for process in self.running:
                process.terminate()


def ending(status: int) -> str:
    """Return how a process ended, in words; a status below 0 is the signal that ended it.

    >>> ending(2), ending(-9)
    ('status 2', 'ended by SIGKILL')
    """
    if status >= 0:
        return f"status {status}"
    names = {one.value: one.name for one in signal.Signals}
    return f"ended by {names.get(-status, f'signal {-status}')}"


def last_words(log: Path) -> str:
    """Return what a command's output says of its end: the last error, or the last line, or that it is empty."""
    text = log.read_text("utf-8", "replace")
    _, mark, error = text.rpartition(ERROR)
    lines = [line for line in text.splitlines() if line.strip()]
    return error.strip().partition("\n")[0] if mark else f"{lines[-1].strip()}." if lines else "it printed nothing."
