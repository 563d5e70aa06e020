"""The jobs of osbert reproduce: a signal ends those at work."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from osbert.runs.reproduce import jobs as reproduce_jobs
from osbert.runs.reproduce.jobs import Job, Jobs


def test_sigterm_ends_the_jobs_at_work_and_begins_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    popen, begun = subprocess.Popen, []

    def sleeping(words: list[str], **how) -> subprocess.Popen[bytes]:
        begun.append(popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)).start()
        return begun[-1]

    monkeypatch.setattr(reproduce_jobs.subprocess, "Popen", sleeping)
    before = signal.getsignal(signal.SIGTERM)
    jobs = [Job(name=name, words=(), folder=tmp_path / name) for name in ("one", "two")]
    with pytest.raises(SystemExit) as ended:
        Jobs(together=1, tell=print).run(jobs)
    assert ended.value.code == 143 and signal.getsignal(signal.SIGTERM) == before
    assert [one.wait() for one in begun] == [-signal.SIGTERM]
