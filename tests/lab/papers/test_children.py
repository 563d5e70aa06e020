"""The commands of osbert reproduce in processes of their own: a signal ends those at work."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from osbert.training.interruption import sigterm_as_exit
from osbert_lab.papers import children
from osbert_lab.papers.children import ChildCommands, last_words
from osbert_lab.study.runner import Study, StudyTrial
from refusals import refusal


def test_sigterm_ends_the_commands_at_work_and_begins_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    popen, begun = subprocess.Popen, []

    def sleeping(words: list[str], **how) -> subprocess.Popen[bytes]:
        begun.append(popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)).start()
        return begun[-1]

    monkeypatch.setattr(children.subprocess, "Popen", sleeping)
    before = signal.getsignal(signal.SIGTERM)
    trials = [StudyTrial(name=name, settings=(), folder=tmp_path / name) for name in ("one", "two")]
    commands = ChildCommands(1)
    with pytest.raises(SystemExit) as ended, sigterm_as_exit():
        Study(work=commands.work, stop=commands.stop, threads=1).run(trials)
    assert ended.value.code == 143 and signal.getsignal(signal.SIGTERM) == before
    assert [one.wait() for one in begun] == [-signal.SIGTERM]


def test_a_killed_command_is_named_by_its_signal_and_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen, script = (
        subprocess.Popen,
        "import os; print('first line'); print('step 40', flush=True); os.kill(os.getpid(), 9)",
    )
    monkeypatch.setattr(children.subprocess, "Popen", lambda words, **how: popen([sys.executable, "-c", script], **how))
    with refusal("child-failed", "SIGKILL", "step 40", "one-log.txt") as raised:
        ChildCommands(1).work(StudyTrial(name="one", settings=(), folder=tmp_path / "one"))
    assert "first line" not in str(raised.value)


def test_the_last_error_of_a_log_is_its_last_word(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    for text, said in (("a\nerror: no corpus.\nmore\n", "no corpus."), ("a\nb\n\n", "b."), ("", "it printed nothing.")):
        log.write_text(text)
        assert last_words(log) == said
