"""Runs osbert commands in child processes that write run folders; several may run in parallel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from osbert.errors import UserError
from osbert_lab.study.runner import StudyTrial

LOG = "log.txt"
ERROR = "error: "
"""The prefix of an error message on the command line."""


class ChildCommands:
    """Runs trials whose settings are words of an osbert command: provides `work` and `stop` of a Study."""

    def __init__(self, together: int) -> None:
        """Divide the cores, or OMP_NUM_THREADS, by the number of commands that run `together`."""
        threads = os.environ.get("OMP_NUM_THREADS", "")
        self.threads = max(1, (int(threads) if threads.isdecimal() else os.cpu_count() or 1) // together)
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock = threading.Lock()
        self.stopping = False

    def work(self, trial: StudyTrial) -> None:
        """Run a command to its end; its output goes into a log file beside the run folder.

        Raises UserError with the name of that file if the command fails.
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
        """Terminate the running commands, which save their state first; start no others."""
        with self.lock:
            self.stopping = True
            for process in self.running:
                process.terminate()


def ending(status: int) -> str:
    """Describe how a process ended; a negative status is the number of the signal that ended it.

    >>> ending(2), ending(-9)
    ('status 2', 'ended by SIGKILL')
    """
    if status >= 0:
        return f"status {status}"
    names = {member.value: member.name for member in signal.Signals}
    return f"ended by {names.get(-status, f'signal {-status}')}"


def last_words(log: Path) -> str:
    """Return the last error in a command's output; without one its last line, or a note that it is empty."""
    text = log.read_text("utf-8", "replace")
    _, mark, error = text.rpartition(ERROR)
    lines = [line for line in text.splitlines() if line.strip()]
    return error.strip().partition("\n")[0] if mark else f"{lines[-1].strip()}." if lines else "it printed nothing."
