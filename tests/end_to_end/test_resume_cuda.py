"""On a GPU, too, a run that is killed ends in the bits of one that was left in peace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

SETTINGS = """
objectives = ["mlm", "nsp"]
[model]
layers = 2
width = 128
heads = 2
length = 300
[data]
batch = 32
micro_tokens = 2000
length = 128
long_share = 0.3
long_length = 300
[optimizer]
learning_rate = 1e-3
[training]
steps = 200
log_every = 1
checkpoint_every = 20
evaluate_every = 0
device = "{device}"
precision = "{precision}"
compile = "{compile}"
"""
SECONDS = 240.0
"""No run takes as long, the compiling of its layers included."""
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def start(recipe: Path, corpus: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "osbert", "pretrain", str(recipe), "--corpus", str(corpus), "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    return output


def kill_after(process: subprocess.Popen[str], out: Path, step: int) -> None:
    """Send SIGKILL once so many steps are logged."""
    path, deadline = out / "metrics.jsonl", time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") > step:
            break
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL, output


@needs_gpu
@pytest.mark.parametrize(("precision", "compile"), [("bf16", "no"), ("bf16", "yes"), ("fp32", "no")])
def test_a_kill_changes_no_bit(tiny_corpus: Path, tmp_path: Path, precision: str, compile: str) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(SETTINGS.format(device="cuda", precision=precision, compile=compile))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(start(recipe, tiny_corpus, whole))
    kill_after(start(recipe, tiny_corpus, cut), cut, 50)
    assert not (cut / "model.safetensors").exists()
    assert "Going on from the checkpoint of step" in finish(start(recipe, tiny_corpus, cut))
    assert (whole / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()
