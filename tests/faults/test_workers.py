"""Processes that help, killed: the loader's are replaced, a corpus build's end it with a word; the result is equal."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import LONG, SECONDS, STEPS, Site, metrics

pytestmark = [
    pytest.mark.skipif(not LONG, reason="each of these starts Python anew several times: make faults"),
    pytest.mark.skipif(sys.platform != "linux", reason="finds children in /proc"),
]
Start = Callable[..., subprocess.Popen[str]]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "osbert", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, **pipes, text=True, env=ENVIRONMENT))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def workers(process: subprocess.Popen[str]) -> list[int]:
    """Return the children that do the work; the one that keeps an eye on shared memory is not among them."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # what ends while one looks
        for path in Path(f"/proc/{process.pid}/task").glob("*/children"):  # each thread has its own
            for pid in path.read_text().split():
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


def kill_one(process: subprocess.Popen[str]) -> bool:
    """Kill a worker as soon as there is one; return whether there was before the process ended."""
    while process.poll() is None:
        for pid in workers(process):
            os.kill(pid, signal.SIGKILL)
            return True
        time.sleep(0.01)
    return False


def output(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate(timeout=SECONDS)
    return text


@pytest.mark.parametrize("kills", [1, 2])
def test_a_worker_of_the_loader(site: Site, start: Start, kills: int) -> None:
    out = site.fresh()
    process = start(*site.words(out, "--data.workers", "2"))
    killed = 0
    for _ in range(kills):
        killed += kill_one(process)
        time.sleep(1)
    told = output(process)
    assert process.returncode == 0, told
    assert killed and "A process of the loader" in told
    assert "Traceback" not in told
    wrong = (out / "model.safetensors").read_bytes() != (site.undisturbed / "model.safetensors").read_bytes()
    wrong |= metrics(out) != metrics(site.undisturbed)
    site.tally.count("kill -9 of a worker of the loader", wrong=wrong)
    assert not wrong


def test_the_workers_end_with_a_run_that_is_killed(site: Site, start: Start) -> None:
    out = site.fresh()
    process = start(*site.words(out, "--data.workers", "2", "--steps", str(100 * STEPS)))
    while not (out / "checkpoints" / "step-4").exists():
        time.sleep(0.01)
    helpers = workers(process)
    assert helpers
    process.kill()
    output(process)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in helpers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in helpers if Path(f"/proc/{pid}").exists()]
    site.tally.count("kill -9 of a run whose loader has workers")


def test_a_worker_of_a_corpus_build(site: Site, start: Start, tmp_path: Path) -> None:
    source = tmp_path / "text.txt"
    source.write_text(site.corpus.with_suffix(".txt").read_text() * 400)

    def words(out: Path) -> list[str]:
        return ["corpus", "build", str(source), "--tokenizer", str(site.corpus), "--out", str(out), "--workers", "2"]

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    told = output(undisturbed := start(*words(whole)))
    assert undisturbed.returncode == 0, told
    process = start(*words(cut))
    assert kill_one(process)
    told = output(process)
    assert process.returncode == 1, told
    assert "Traceback" not in told and "worker" in told, told
    told = output(again := start(*words(cut)))
    assert again.returncode == 0, told
    files = sorted(path.relative_to(whole) for path in whole.rglob("*.npy"))
    wrong = any((whole / name).read_bytes() != (cut / name).read_bytes() for name in files)
    site.tally.count("kill -9 of a worker of a corpus build", wrong=wrong)
    assert files and not wrong
    shutil.rmtree(whole)
