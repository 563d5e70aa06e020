"""A tokenizer of a few words for the tasks' tests."""

from __future__ import annotations

import pytest

from osbert.data.pack import Packer
from osbert.text.tokenizer import SPECIALS, Tokenizer


@pytest.fixture(scope="session")
def packer() -> Packer:
    words = ["good", "bad", "film", "a", "play", "##s", "long", ".", "not", "very"]
    return Packer(tokenizer=Tokenizer([*SPECIALS, *words]), length=8)
