"""osbert commands in processes of their own, which fill run folders; several may be at work at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from osbert.errors import UserError
from osbert.runs.study.runner import StudyTrial

LOG = "log.txt"


class ChildCommands:
    """Runs trials whose settings are the words of an osbert command: `work` and `stop` of a Study."""

    def __init__(self, together: int) -> None:
        """Share the processor's cores out among as many commands as run `together`."""
        self.threads = max(1, (os.cpu_count() or 1) // together)
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
            last = path.read_text("utf-8", "replace").rpartition("error: ")[2].strip().partition("\n")[0]
            raise UserError(f"status {status}: {last} Its output is in {path}.", code="child-failed")

    def stop(self) -> None:
        """End those at work, which save their state first; no other begins."""
        with self.lock:
            self.stopping = True
            for process in self.running:
                process.terminate()
