"""What runs where torch is not installed: vocabularies and corpora; all else says what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TEXTS = "The good film.\n\nA bad play about a cat.\n\nAnother text, with more words in it.\n"


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which torch cannot be imported."""
    package = tmp_path / "absent" / "torch"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").write_text("raise ModuleNotFoundError('absent', name='torch')\n")
    paths = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def osbert(words: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "osbert", *words.split()]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)


def test_vocabularies_and_corpora_need_no_torch(without_torch: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(TEXTS)
    for words in (
        "tokenizer train texts.txt --out vocabulary --vocabulary 60",
        "tokenizer encode vocabulary cat",
        "tokenizer extend vocabulary texts.txt --out extended --minimum 1",
        "corpus build texts.txt --tokenizer vocabulary --out corpus",
        "corpus build texts.txt --tokenizer extended --out other",
        "corpus show corpus",
    ):
        done = osbert(words, without_torch, tmp_path)
        assert done.returncode == 0, (words, done.stderr)


def test_what_needs_torch_says_that_it_is_missing(without_torch: dict[str, str], tmp_path: Path) -> None:
    done = osbert("pretrain cpu --corpus corpus --out run --json", without_torch, tmp_path)
    assert done.returncode == 1
    error = json.loads(done.stderr.splitlines()[-1])
    assert (error["code"], "pip install torch" in error["message"]) == ("missing-library", True)
