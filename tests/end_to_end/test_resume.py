"""Killed, interrupted and terminated for real, a run ends in the same bits as one that was left in peace."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from safetensors.torch import load_file

from clock import CLOCK
from forked import start_osbert

SETTINGS = """
objectives = ["mlm", "nsp"]
[model]
layers = 1
width = 16
heads = 2
length = 32
[data]
batch = 8
micro_tokens = 128
length = 24
long_share = 0.3
long_length = 32
[optimizer]
learning_rate = 5e-3
[training]
steps = 120
log_every = 7
checkpoint_every = 6
evaluate_every = 30
precision = "fp32"
device = "cpu"
"""


def arguments(recipe: Path, corpus: Path, out: Path) -> list[str]:
    return ["pretrain", str(recipe), "--corpus", str(corpus), "--out", str(out)]


def start(words: list[str]) -> BaseProcess:
    return start_osbert(words, Path(words[-1]).with_suffix(".log"))


def lines_logged(out: Path) -> int:
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def being_written(out: Path) -> bool:
    return any((out / "checkpoints").glob("step-*.unfinished"))


def stop_when(process: BaseProcess, condition: Callable[[], bool], number: signal.Signals) -> int | None:
    """Send a signal as soon as the condition holds, and return the exit status."""
    deadline = time.monotonic() + 90
    while not condition() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.0005)
    os.kill(process.pid, number)
    process.join(timeout=90)
    return process.exitcode


def metrics(out: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]


def test_kills_interrupts_and_terminations_change_nothing(tiny_corpus: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(SETTINGS)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    words = arguments(recipe, tiny_corpus, cut)
    command = [sys.executable, "-m", "osbert", *arguments(recipe, tiny_corpus, whole)]
    undisturbed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    moment = random.randint(1, 5)
    assert stop_when(start(words), lambda: lines_logged(cut) >= moment, signal.SIGKILL) == -signal.SIGKILL
    assert not (cut / "model.safetensors").exists()
    assert stop_when(start(words), lambda: being_written(cut), signal.SIGKILL) == -signal.SIGKILL
    before = lines_logged(cut)
    assert stop_when(start(words), lambda: lines_logged(cut) > max(before, 7), signal.SIGINT) == 130
    stopped = lines_logged(cut)
    assert stop_when(start(words), lambda: lines_logged(cut) > stopped, signal.SIGTERM) == 143
    assert not (cut / "model.safetensors").exists()
    last = start(words)
    last.join(timeout=90)
    assert last.exitcode == 0

    output, _ = undisturbed.communicate(timeout=90)
    assert undisturbed.returncode == 0, output
    assert "The model is in" in output
    assert (whole / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()
    assert metrics(whole) == metrics(cut)
    assert not list(cut.rglob("*.unfinished"))


def test_a_kill_changes_neither_the_generator_nor_what_is_drawn_from_it(tiny_corpus: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(SETTINGS.replace('["mlm", "nsp"]', '["replaced"]').replace("steps = 120", "steps = 24"))
    runs = [tmp_path / name for name in ("whole", "cut")]
    whole, cut = (start(arguments(recipe, tiny_corpus, out)) for out in runs)
    assert stop_when(cut, lambda: lines_logged(runs[1]) >= 1, signal.SIGKILL) == -signal.SIGKILL
    assert not (runs[1] / "model.safetensors").exists()
    again = start(arguments(recipe, tiny_corpus, runs[1]))
    for process in (whole, again):
        process.join(timeout=90)
        assert process.exitcode == 0
    for name in ("model.safetensors", "generator/model.safetensors"):
        assert (runs[0] / name).read_bytes() == (runs[1] / name).read_bytes()
    assert metrics(runs[0]) == metrics(runs[1])


STREAMS = """
objectives = ["left_to_right"]
[model]
layers = 2
width = 16
heads = 2
length = 16
memory = 12
positions = "distances"
segments = 0
pooling = "none"
direction = "left_to_right"
[data]
batch = 4
length = 8
streams = true
held_out = 0.1
[training]
steps = 40
log_every = 1
checkpoint_every = 3
evaluate_every = 20
precision = "fp32"
device = "cpu"
"""


@pytest.mark.lab
def test_a_killed_run_on_streams_goes_on_with_its_memory(tiny_corpus: Path, tmp_path: Path) -> None:
    recipe, whole, cut = tmp_path / "streams.toml", tmp_path / "whole", tmp_path / "cut"
    recipe.write_text(STREAMS)
    assert stop_when(start(arguments(recipe, tiny_corpus, cut)), lambda: lines_logged(cut) >= 7, signal.SIGKILL) < 0
    assert not (cut / "model.safetensors").exists()
    newest = max((cut / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    kept = load_file(newest / "weights.safetensors")
    assert kept["memory.kept.counts"].max() == 12  # all that there is room for
    for process in [start(arguments(recipe, tiny_corpus, out)) for out in (cut, whole)]:
        process.join(timeout=90)
        assert process.exitcode == 0
    assert (whole / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()
    assert metrics(whole) == metrics(cut)
    assert not any("memory" in name for name in load_file(whole / "model.safetensors"))
