"""A tokenizer of a few words for the tests of tasks, and a writer of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osbert.data.pack import Packer
from osbert.text.tokenizer import SPECIALS, Tokenizer


@pytest.fixture(scope="session")
def packer() -> Packer:
    words = ["good", "bad", "film", "a", "play", "##s", "long", ".", "not", "very"]
    return Packer(tokenizer=Tokenizer([*SPECIALS, *words]), length=8)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(content: Any, name: str = "train.json", encoding: str = "utf-8", end: str = "\n") -> Path:
        text = content if isinstance(content, str) else json.dumps(content, indent=1, ensure_ascii=False)
        (tmp_path / name).write_bytes(text.replace("\n", end).encode(encoding))
        return tmp_path / name

    return write
