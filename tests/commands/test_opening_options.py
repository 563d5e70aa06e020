"""--no-verify and --trust: every verb that opens a finished run finds a flipped bit, unless told not to look."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import terminal
from osbert.inference.engine import load
from osbert.training.run_folder import RunFolder
from tiny_runs import write_exported

LINES = "a good film\na bad play\n"


@pytest.fixture
def flipped(run: Path, tmp_path: Path) -> Path:
    """Return a run in whose weights a low bit of one number is another one."""
    folder = tmp_path / "flipped"
    shutil.copytree(run, folder)
    path = folder / "model.safetensors"
    content = np.fromfile(path, np.uint8)
    content[-4 * 40] ^= 1
    content.tofile(path)
    return folder


def test_a_flipped_bit_is_found_by_every_verb(
    flipped: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text(LINES)
    tuning = ("--data", table, "--epochs", "1", "--device", "cpu")
    for words in (
        ("predict", flipped, "a good film"),
        ("evaluate", flipped, "--data", table),
        ("embed", flipped, tmp_path / "texts.txt", "--out", tmp_path / "out.npz"),
        ("search", tmp_path / "out.npz", "a film"),
        ("convert", flipped, tmp_path / "converted", "--to", "huggingface"),
        ("finetune", "classify", "--model", flipped, *tuning, "--out", tmp_path / "tuned"),
        ("finetune", "classify", "--model", flipped, *tuning, "--out", tmp_path / "few", "--tuning", "lora"),
    ):
        assert terminal.run(*words) == 1, words
        assert f"{flipped / 'model.safetensors'}: " in capsys.readouterr().err, words
        assert terminal.run(*words, "--no-verify") == 0, words


def test_an_exported_run_has_hashes_of_its_own_files(run: Path, tmp_path: Path) -> None:
    write_exported(tmp_path / "onnx", run)
    finished = RunFolder(tmp_path / "onnx").facts["finished"]
    assert "model.onnx" in finished["sha256"] and "model.safetensors" not in finished["sha256"]
    assert finished["best"] == RunFolder(run).facts["finished"]["best"]
    load(tmp_path / "onnx")
    vocabulary = tmp_path / "onnx" / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("good", "goof"))
    assert terminal.run("predict", tmp_path / "onnx", "a good film") == 1
