"""Fixtures of objectives: a tokenizer, its packer, and documents in its words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unique
from osbert.data.pack import Packer
from osbert.text.document import Document
from osbert.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return unique.tokenizer()


@pytest.fixture(scope="session")
def packer(tokenizer: Tokenizer) -> Packer:
    """Return a packer for sequences of 64."""
    return Packer(tokenizer=tokenizer, length=64)


@pytest.fixture(scope="session")
def make_documents() -> Callable[..., list[Document]]:
    """Return a maker of documents from the lengths of their sentences; of three pieces two start a word."""
    return lambda lengths: unique.documents(lengths, lambda ids: ids % 3 > 0)


@pytest.fixture(scope="session")
def text(make_documents: Callable[..., list[Document]]) -> list[Document]:
    """Return 120 documents of mixed sizes, about 58,000 pieces."""
    rng = np.random.default_rng(2)
    return make_documents([rng.integers(2, 40, size=rng.integers(3, 44)).tolist() for _ in range(115)])
