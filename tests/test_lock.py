"""Two processes and one folder."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from osbert import lock
from osbert.errors import UserError
from osbert.lock import locked

HOLD = """
import sys
from pathlib import Path
from osbert.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_holder_is_named_and_a_kill_lets_go(tmp_path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError) as refused, locked(folder):
            pass
        holder.kill()
        holder.wait()
    named = rf"process {holder.pid} on {re.escape(socket.gethostname())}, since \d{{4}}-.*:\d\d \(-c {folder}\), is"
    assert re.search(named, str(refused.value))
    assert str(refused.value).startswith(f"{folder} is in use")
    with locked(folder):
        assert f"process {os.getpid()} " in (folder / ".lock").read_text()


def test_a_forked_child_does_not_keep_the_lock_of_a_dead_parent(tmp_path) -> None:
    """A worker that outlives a killed process must not stop the next one.

    It is the worker that says "held": from then on it has closed its copy of the lock. The parent only waits.
    """
    fork = HOLD.replace("    print", "    import os, time\n    if os.fork(): time.sleep(60)\n    print")
    command = [sys.executable, "-c", fork, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with locked(tmp_path):
            pass
        holder.stdin.close()


def test_it_can_be_taken_again_but_not_twice_at_once(tmp_path) -> None:
    for _ in range(2):
        with locked(tmp_path), pytest.raises(UserError, match=f"process {os.getpid()} "), locked(tmp_path):
            pass


def test_the_lock_may_lie_elsewhere(tmp_path) -> None:
    file = tmp_path / "aside" / "lock"
    with (
        locked(tmp_path / "run", file=file),
        pytest.raises(UserError, match="run is in use"),
        locked(tmp_path / "run", file=file),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["aside"]


def test_a_holder_that_could_not_write_its_name_still_holds(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.02)
    with locked(tmp_path):
        (tmp_path / ".lock").write_text("")
        with pytest.raises(UserError, match="another process is writing"), locked(tmp_path):
            pass


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, capsys) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with locked(tmp_path):
        pass
    assert "has no locks" in capsys.readouterr().out


def test_a_long_command_is_cut(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(Path("/somewhere/osbert")), "pretrain", "x" * 5000])
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text().endswith("xxx...),\n")
