"""Two processes and one run folder."""

from __future__ import annotations

import subprocess
import sys

import pytest

from osbert.errors import UserError
from osbert.training.lock import locked

HOLD = """
import sys
from pathlib import Path
from osbert.training.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_holder_is_named_and_a_kill_lets_go(tmp_path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"process {holder.pid} "), locked(folder):
            pass
        holder.kill()
        holder.wait()
    with locked(folder):
        assert (folder / ".lock").read_text().strip().isdigit()


def test_it_can_be_taken_again(tmp_path) -> None:
    for _ in range(2):
        with locked(tmp_path):
            pass
