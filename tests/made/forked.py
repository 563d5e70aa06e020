"""Processes that fork from one that has imported torch: a start costs milliseconds instead of seconds."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn
from unittest import mock

import pytest

from terminal import end_with

PRELOADED = (
    *("torch._dynamo", "osbert.cli", "osbert.runs.pretrain.pretraining_run", "osbert.runs.finetune.finetune"),
    *("osbert.runs.rows.predict", "osbert_lab.executors.corpus_tasks", "osbert_lab.executors.row_tasks"),
    "datatrove.executor.local",
)
"""What takes long to import; what is not installed is left out."""


def forking() -> ForkServerContext:
    """Return the context of processes that fork from one with PRELOADED and one thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        forkserver.ensure_running()
    return context


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the processes that osbert would spawn; like those, they get what they need pickled."""
    real, context = multiprocessing.get_context, forking()
    monkeypatch.setattr(multiprocessing, "get_context", lambda way: context if way == "spawn" else real(way))


def start_osbert(words: list[str], log: Path) -> BaseProcess:
    """Start osbert with these words; what it prints goes to a file."""
    process = forking().Process(target=_command, args=(words, log))
    process.start()
    return process


def _command(words: list[str], log: Path) -> NoReturn:
    with log.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    end_with(words)
