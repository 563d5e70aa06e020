"""Ctrl-C of a terminal, which every process of a command gets, at many moments of a corpus build: no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from osbert.processes import holding_interrupts

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to block"),
    pytest.mark.usefixtures("interruptible"),
]
CHILD = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"


def is_spared() -> bool:
    """Return whether a process that is started now is spared Ctrl-C from its first instruction on."""
    return subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_child_is_spared_ctrl_c_and_the_parent_gets_it_at_the_end_of_the_block() -> None:
    with pytest.raises(KeyboardInterrupt), holding_interrupts():
        assert is_spared()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        held = True
    assert held
    assert not is_spared()


def test_ctrl_c_while_workers_start_leaves_no_traceback(tmp_path: Path) -> None:
    """The workers import modules and would print tracebacks; the moment is when the first of them is there."""
    letters = "abcdefgh"
    (tmp_path / "text.txt").write_text("".join(f"{letters} {number % 7}\n" for number in range(300_000)))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    words = ["corpus", "build", "text.txt", "--tokenizer", "vocab.txt", "--workers", "3"]
    for delay in (0.0, 0.2, 0.5):
        out = tmp_path / f"corpus-{delay}"
        process = subprocess.Popen(
            [sys.executable, "-m", "osbert", *words, "--out", out],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, start_new_session=True,
        )  # fmt: skip
        while process.poll() is None and not (out / "building.json").exists():
            time.sleep(0.005)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 130, output
        assert "Traceback" not in output
