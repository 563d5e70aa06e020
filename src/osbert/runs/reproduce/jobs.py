"""Runs many osbert commands, several at a time, each once: what is finished in its run folder is not run again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from osbert.errors import Problems
from osbert.training.interruption import sigterm_as_exit
from osbert.training.run_folder import RunFolder

LOG = "log.txt"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command that fills a run folder. It begins when the job called `after`, if any, is done."""

    name: str
    words: tuple[str, ...]
    folder: Path
    after: str = ""


@dataclass
class Jobs:
    """Runs jobs, at most `together` at a time; `tell(message)` is given a line for each that ends."""

    together: int
    tell: Callable[[str], object]
    problems: Problems = field(default_factory=lambda: Problems(heading="Some runs failed; the others are kept"))
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: bool = False

    def run(self, jobs: Sequence[Job]) -> None:
        """Run what is not finished yet, in order as far as possible.

        Raises UserError that names each job that failed, with the file its output went to, after all others have ended.
        Ctrl-C and SIGTERM end those at work, which save their state first, and no other begins.
        """
        waiting = [job for job in jobs if not RunFolder(job.folder).finished]
        started, done = time.monotonic(), 0
        futures: dict[str, Future[bool]] = {}
        with ThreadPoolExecutor(max_workers=self.together, thread_name_prefix="job") as pool, sigterm_as_exit():
            try:
                for job in waiting:
                    futures[job.name] = pool.submit(self._one, job, futures.get(job.after))
                for name, future in futures.items():
                    outcome = "done" if future.result() else "not done"
                    done += 1
                    left = (time.monotonic() - started) / done * (len(waiting) - done)
                    self.tell(f"[{done}/{len(waiting)}] {name}: {outcome}  ({left / 60:.0f} min left)")
            except BaseException:
                self._stop()
                raise
        self.problems.stop_if_any()

    def _one(self, job: Job, before: Future[bool] | None) -> bool:
        # Jobs are begun in order, so what a job waits for is at work already: no thread waits for one not begun.
        if before is not None and not before.result():
            return False
        job.folder.mkdir(parents=True, exist_ok=True)
        path = job.folder.with_name(f"{job.folder.name}-{LOG}")
        threads = str(max(1, (os.cpu_count() or 1) // self.together))
        with path.open("wb") as log:
            with self.lock:
                if self.stopping:
                    return False
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "osbert", *job.words],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "OMP_NUM_THREADS": threads},
                )
                self.running.add(process)
            status = process.wait()
        with self.lock:
            self.running.discard(process)
            if status and not self.stopping:
                self.problems.add(f"{job.name}: status {status}; its output is in {path}")
        return RunFolder(job.folder).finished

    def _stop(self) -> None:
        with self.lock:
            self.stopping = True
            for process in self.running:
                process.terminate()
