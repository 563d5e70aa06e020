"""A small demo from beginning to end: killed in a process of its own, it goes on; nothing in it is canned."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from osbert.runs.contract import Watch
from osbert_lab.demo import chain
from osbert_lab.demo.stages import Stage
from terminal import run
from tiny_runs import write_run

PACKAGES = ("asyncio", "email", "importlib", "unittest", "multiprocessing")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few packages of the standard library, each taken as a library of its own."""
    folder = tmp_path_factory.mktemp("source")
    for name in PACKAGES:
        shutil.copytree(Path(sysconfig.get_paths()["stdlib"]) / name, folder / name)
    return folder


def test_a_demo_from_beginning_to_end(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("--source", str(source), "--vocabulary", "1000", "--steps", "20", "--epochs", "1", "--rows", "40")
    first_half = [*sizes, "--model", "none"]
    command = [sys.executable, "-m", "osbert", "demo", *first_half]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert first.stdout is not None
    with first:
        for line in first.stdout:
            if line.startswith("$ osbert corpus build"):
                os.killpg(first.pid, signal.SIGKILL)  # with the command, which would go on building
    assert (tmp_path / "demo" / "tokenizer" / "vocab.txt").is_file()

    # Killed in its second command; the others, of which each takes seconds to import torch, run here.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chain, "run", in_this_process)
    assert run("demo", *first_half) == 0
    output, errors = capsys.readouterr()
    assert "finished earlier" in output
    assert "Traceback" not in output + errors
    demo = tmp_path / "demo"
    commands = [line[2:] for line in output.splitlines() if line.startswith("$ osbert ")]
    assert len(commands) == len(set(commands)) == 9
    with (demo / "predictions.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) > len(PACKAGES)
    assert {row["prediction"] for row in rows} <= set(PACKAGES)
    report = (demo / "report.html").read_text(encoding="utf-8")
    for text in (rows[0]["text"], "masked pieces", "from scratch", commands[0]):
        assert text in report
    assert "http://" not in report.replace("http://www.w3.org", "")
    assert "https://" not in report
    seconds = json.loads((demo / "demo.json").read_text(encoding="utf-8"))["seconds"]
    assert set(commands) <= set(seconds)

    encoder = write_run(tmp_path / "encoder", None)
    assert run("demo", *sizes, "--model", encoder) == 0
    report = (demo / "report.html").read_text(encoding="utf-8")
    for text in ("from encoder, a published encoder", "Nearest passages", "Why?", "completeness error"):
        assert text in report


def in_this_process(stage: Stage, watch: Watch, *, shows_output: bool) -> str:
    """Stand for a process of the command."""
    assert shows_output
    with redirect_stdout(StringIO()) as output:
        assert run(*stage.words) == 0
    return output.getvalue() if stage.report_heading else ""
