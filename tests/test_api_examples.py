"""The public functions' examples run as they stand in their docstrings, each in a folder of its own."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import osbert


@pytest.mark.parametrize("name", ["build_corpus", "extend_tokenizer", "pretrain", "train_tokenizer"])
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(osbert, name), name, globs={})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
