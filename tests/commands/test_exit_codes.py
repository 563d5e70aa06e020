"""The exit codes of docs/output.md, and the completion of words in a shell."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from osbert import cli
from osbert.runs.contract import Notice, Watch
from osbert.training.interruption import Interruption, StopRequest, sigterm_as_exit
from terminal import run

ROOT = Path(__file__).resolve().parents[2]


def stopped(*_: Any, **__: Any) -> None:
    """Stand for work that gets SIGTERM."""
    with sigterm_as_exit():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()


def stopped_in_order(*_: Any, watch: Watch, wish: Interruption, **__: Any) -> None:
    """Stand for a training that ends after the step in which a signal comes."""
    with wish:
        os.kill(os.getpid(), signal.SIGINT)
        while not wish.signal:
            time.sleep(0.001)
    watch(Notice("stopped after step 3"))
    raise StopRequest


def test_a_stopped_training_ends_in_an_error_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = {
        "finetune": ("osbert.runs.finetune.finetune.finetune", ("classify", "--model", tmp_path, "--data", tmp_path)),
        "pretrain": ("osbert.runs.pretrain.pretraining.pretrain", ("cpu", "--corpus", tmp_path)),
    }
    for verb, (work, words) in training.items():
        with mock.patch(work, stopped_in_order):
            assert run(verb, *words, "--out", tmp_path / "out", "--json") == 130
        [line] = capsys.readouterr().err.splitlines()
        assert json.loads(line)["code"] == "interrupted", verb


@pytest.mark.lab
def test_a_stopped_adaptation_ends_in_an_error_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        mock.patch("osbert_lab.adaptation.adapt.adapt", stopped_in_order),
        mock.patch("osbert_lab.adaptation.adapt.recipe_for", lambda *_: "adapt"),
    ):
        assert run("adapt", tmp_path, tmp_path, "--out", tmp_path / "out", "--json") == 130
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["code"] == "interrupted"


@pytest.mark.lab
@pytest.mark.parametrize(("number", "named"), [(errno.ENOSPC, "out.txt"), (errno.EACCES, "in.txt")])
def test_a_full_disk_names_the_output_of_a_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, named: str
) -> None:
    error = OSError(number, os.strerror(number), "in.txt", None, "out.txt")
    with mock.patch("osbert_lab.demo.chain.run_demo", mock.Mock(side_effect=error)):
        assert run("demo", "--out", tmp_path / "demo") == 1
    assert capsys.readouterr().err.startswith(f"error: {named}: ")


def test_the_codes_of_the_page(tmp_path: Path) -> None:
    codes = {run("--version"), run("corpus", "show", tmp_path / "nowhere"), run("corpus", "shwo")}
    for work in (mock.Mock(side_effect=KeyboardInterrupt), stopped):
        with mock.patch("osbert.commands.corpus.build.build_corpus", work):
            codes.add(run("corpus", "build", tmp_path, "--tokenizer", tmp_path, "--out", tmp_path / "corpus"))
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
    of_lab = {"plan"} if importlib.util.find_spec("osbert_lab") else set()
    assert {"pretrain", "predict"} | of_lab <= {*completed(script, "p")}
    assert "build" in completed(script, "corpus", "b")
    assert {"--json"} <= {*completed(script, "evaluate", "--js")}
