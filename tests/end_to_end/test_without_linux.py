"""What Linux alone has is taken away, as on macOS: everything that used it has another way."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from osbert import files
from osbert.corpus import task_options
from osbert.runs.pretrain import pretraining
from osbert.training import memory, probe, processor
from terminal import run

SOURCE = Path(__file__).resolve().parents[2] / "src" / "osbert"
LINUX = re.compile(
    r"/proc\b|sched_[gs]etaffinity|BOOTTIME|mallopt|F_FULLFSYNC|SC_PHYS_PAGES|O_DIRECT\b|memfd|prctl|epoll"
    r"|os\.fork|\"fork|pidfd|fallocate|fadvise|abstract socket|SIGRT|copy_file_range|sendfile"
)
"""Words of what only some systems have."""
TAKEN = {
    "corpus/task_options.py", "files.py", "runs/pretrain/pretraining.py",
    "training/memory.py", "training/probe.py", "training/processor.py",
}  # fmt: skip
"""The files with such words, all of which are tested here."""


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Take away /proc, the processors of a process, the clock since the boot, and glibc."""
    read = Path.read_text

    def read_text(path: Path, *rest: Any, **more: Any) -> str:
        if path.parts[:2] == ("/", "proc"):
            raise FileNotFoundError(path)
        return read(path, *rest, **more)

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(probe, "PROCESS", Path("/nowhere"))
    monkeypatch.setattr(processor, "Path", lambda name: Path("/nowhere", name.lstrip("/")))
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    return monkeypatch


def test_nothing_else_needs_linux() -> None:
    """A file that is new here needs another way for other systems, and a test on this page."""
    using = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if LINUX.search(path.read_text("utf-8"))}
    assert using == TAKEN


def test_pretraining_goes_through(elsewhere: pytest.MonkeyPatch, tiny_corpus: Path, tmp_path: Path) -> None:
    sizes = ("--layers", "1", "--width", "16", "--heads", "2", "--feedforward", "16", "--data.length", "32")
    words = ("pretrain", "cpu", "--corpus", tiny_corpus, "--out", tmp_path / "run", "--steps", "2", "--batch", "4")
    assert run(*words, *sizes) == 0
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_figures_of_the_process_and_the_machine(elsewhere: pytest.MonkeyPatch) -> None:
    assert task_options.cores() == os.cpu_count()
    assert 0 < pretraining.since_start() <= time.process_time()
    assert not processor.keep_memory()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    elsewhere.setattr(sys, "platform", "darwin")  # where it is in bytes
    assert peak <= probe.resident_memory() < 2 * peak
    probe.reset_memory(processor.Processor(device=torch.device("cpu"), precision="fp32"))
    elsewhere.setattr(os, "sysconf", lambda name: int(name))
    assert memory.device_memory(torch.device("cpu")) == sys.maxsize


def test_the_name_of_the_processor(elsewhere: pytest.MonkeyPatch) -> None:
    assert processor.cpu_model() == (processor.platform.processor() or processor.platform.machine())
    asked = []

    def sysctl(words: list[str], **how: Any) -> SimpleNamespace:
        asked.append(words)
        return SimpleNamespace(stdout="Apple M9\n")

    elsewhere.setattr(subprocess, "run", sysctl)
    elsewhere.setattr(sys, "platform", "darwin")
    assert processor.cpu_model() == "Apple M9"
    assert asked == [["sysctl", "-n", "machdep.cpu.brand_string"]]


@pytest.mark.parametrize("refused", [False, True])
def test_files_reach_the_disk_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: bool) -> None:
    """By F_FULLFSYNC on macOS, where fsync stops at the disk's cache; by fsync where a file system lacks it."""
    calls: list[object] = []

    def control(handle: int, command: int) -> None:
        calls.append(command)
        if refused:
            raise OSError

    monkeypatch.setattr(files, "fcntl", SimpleNamespace(**{**vars(fcntl), "F_FULLFSYNC": 51, "fcntl": control}))
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync"))
    files.sync(tmp_path)
    assert calls == ([51, "fsync"] if refused else [51])
