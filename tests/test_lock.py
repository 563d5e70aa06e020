"""Two processes and one folder."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from osbert import lock
from osbert.errors import UserError
from osbert.lock import LockWarning, claim, hold_lock
from refusals import refusal
from terminal import told

HOLD = """
import sys
from pathlib import Path
from osbert.lock import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_holder_is_named_and_a_kill_lets_go(tmp_path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with refusal("output-in-use", folder) as refused, hold_lock(folder):
            pass
        holder.kill()
        holder.wait()
    named = rf"{holder.pid} .*{re.escape(socket.gethostname())}\b.* \d{{4}}-.*:\d\d \(-c {folder}\)"
    assert re.search(named, str(refused.value))
    with hold_lock(folder):
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
        with hold_lock(tmp_path):
            pass
        holder.stdin.close()


def test_it_can_be_taken_again_but_not_twice_at_once(tmp_path) -> None:
    for _ in range(2):
        with hold_lock(tmp_path), refusal("output-in-use", os.getpid()), hold_lock(tmp_path):
            pass


def test_the_lock_may_lie_elsewhere(tmp_path) -> None:
    file = tmp_path / "aside" / "lock"
    with (
        hold_lock(tmp_path / "run", file=file),
        refusal("output-in-use"),
        hold_lock(tmp_path / "run", file=file),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_a_holder_that_could_not_write_its_name_still_holds(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.02)
    with hold_lock(tmp_path):
        (tmp_path / ".lock").write_text("")
        with refusal("output-in-use"), hold_lock(tmp_path):
            pass


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)


@pytest.mark.usefixtures("without_locks")
def test_a_file_system_without_locks_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(LockWarning) as warned, hold_lock(tmp_path):
        pass
    assert str(tmp_path) in str(warned[0].message)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("without_locks")
def test_the_command_line_prints_a_line_on_a_file_system_without_locks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("The cat sat on the mat.\n" * 10)
    command = ["tokenizer", "train", tmp_path / "text.txt", "--out", tmp_path / "vocabulary", "--vocabulary", 60]
    for _ in range(2):  # every command says so
        found = told(capsys, *command)
        assert (found.status, found.error.count("\n")) == (0, 1)
        assert found.error.startswith(f"note: the file system of {tmp_path / 'vocabulary'} has no locks")
        shutil.rmtree(tmp_path / "vocabulary")


def test_a_long_command_is_cut(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(Path("/somewhere/osbert")), "pretrain", "x" * 5000])
    with hold_lock(tmp_path):
        assert (tmp_path / ".lock").read_text().endswith("xxx...),\n")


def test_an_output_is_held_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real.csv").write_text("before")
    (tmp_path / "link.csv").symlink_to("real.csv")
    with claim(Path("link.csv")) as path:
        assert path == tmp_path / "real.csv"  # the link stays, what it points to is replaced
        for other in (Path("real.csv"), tmp_path / "link.csv", tmp_path / ".." / tmp_path.name / "real.csv"):
            with refusal("output-in-use", other, os.getpid()), claim(other):
                pass
        with claim(tmp_path / "another.csv"):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "real.csv"]


def test_folders_around_an_output_are_made_and_go_when_nothing_was_written(tmp_path: Path) -> None:
    with refusal("refused"), claim(tmp_path / "a" / "b" / "c.csv"):
        raise UserError("no")
    assert not list(tmp_path.iterdir())
    with claim(tmp_path / "a" / "b" / "c.csv") as path:
        path.touch()
    assert path.exists()


def test_the_lock_of_a_killed_process_stops_nobody_and_is_removed(tmp_path: Path) -> None:
    with claim(tmp_path / "out"):
        [lock] = tmp_path.iterdir()
    lock.write_text("process 1 on nowhere,")
    with claim(tmp_path / "out"):
        assert f"process {os.getpid()} " in lock.read_text()
    assert not lock.exists()


def test_a_lock_that_was_removed_while_another_waited_for_it_is_made_anew(tmp_path, monkeypatch) -> None:
    """The second opens the file, the first removes it and lets go: the second must not hold what nobody can find."""
    flock, removed = lock.fcntl.flock, []

    def late(handle: int, operation: int) -> None:
        if not removed:
            removed.append(handle)
            (tmp_path / ".lock").unlink()
        flock(handle, operation)

    monkeypatch.setattr(lock.fcntl, "flock", late)
    with hold_lock(tmp_path):
        assert removed
        monkeypatch.undo()
        with refusal("output-in-use"), hold_lock(tmp_path):
            pass


def test_a_link_in_the_place_of_the_lock_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("somebody's")
    (tmp_path / ".lock").symlink_to("other")
    with pytest.raises(OSError), hold_lock(tmp_path):
        pass
    assert (tmp_path / "other").read_text() == "somebody's"


def test_streams_are_not_held(tmp_path: Path) -> None:
    for out in (Path("/dev/stdout"), Path("/dev/null")):
        with claim(out) as first, claim(out) as second:
            assert first == second == out
