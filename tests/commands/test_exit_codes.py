"""The exit codes of docs/output.md, and the completion of words in a shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from osbert import cli
from osbert.training.interruption import sigterm_as_exit
from terminal import run

ROOT = Path(__file__).resolve().parents[2]


def stopped(*_: Any, **__: Any) -> None:
    """Stand for work that gets SIGTERM."""
    with sigterm_as_exit():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()


def test_the_codes_of_the_page(tmp_path: Path) -> None:
    codes = {run("--version"), run("corpus", "show", tmp_path / "nowhere"), run("corpus", "shwo")}
    for work in (mock.Mock(side_effect=KeyboardInterrupt), stopped):
        with mock.patch("osbert.runs.demo.chain.run_demo", work):
            codes.add(run("demo", "--out", tmp_path / "demo"))
    page = (ROOT / "docs" / "output.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    assert codes == {int(code) for code in re.findall(r"^\| `(\d+)` \|", page, re.MULTILINE)}


def completed(script: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of the words after `osbert`."""
    line = " ".join(f"'{word}'" for word in ("osbert", *words))
    code = f'. {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _osbert; printf "%s\\n" "${{COMPREPLY[@]}}"'
    shell = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=20, check=True)
    return [word.strip() for word in shell.stdout.splitlines()]


def test_completion_is_installed_by_one_command(tmp_path: Path) -> None:
    """Without torch: this is a process of its own, with a home of its own."""
    code = "import sys; from osbert import cli; status = cli.main(); assert 'torch' not in sys.modules; exit(status)"
    home = {**os.environ, "HOME": str(tmp_path), "SHELL": "/bin/bash"}
    words = [sys.executable, "-c", code, cli.INSTALL, "--shell", "bash"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=home)
    assert done.returncode == 0, done.stderr
    (script,) = (tmp_path / ".local/share/bash-completion/completions").iterdir()
    assert str(script) in (tmp_path / ".bashrc").read_text()
    assert not subprocess.run(["bash", "-n", str(script)], timeout=20).returncode
    assert {"pretrain", "predict", "plan"} <= {*completed(script, "p")}
    assert "build" in completed(script, "corpus", "b")
    assert {"--json"} <= {*completed(script, "evaluate", "--js")}
