"""Processes that fork from one that has imported torch: a start costs milliseconds instead of seconds."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
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
    return _start(end_with, words, log)


def start_script(script: Path, arguments: list[str], environment: dict[str, str], log: Path) -> BaseProcess:
    """Start a script as Python does, with further variables in its environment; what it prints goes to a file."""
    return _start(_run_script, (script, arguments, environment), log)


def _start(function: Callable[[Any], object], given: object, log: Path) -> BaseProcess:
    process = forking().Process(target=_run_logged, args=(function, given, log))
    process.start()
    return process


def _run_logged(function: Callable[[Any], object], given: object, log: Path) -> None:
    with log.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    function(given)


def _run_script(given: tuple[Path, list[str], dict[str, str]]) -> None:
    script, arguments, environment = given
    os.environ.update(environment)
    sys.argv = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")
