"""A tokenizer, documents whose every piece is unique, and a packer for the tests of objectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import settings

from osbert.data.pack import Packer
from osbert.text.document import Document
from osbert.text.tokenizer import SPECIALS, Tokenizer

VOCABULARY = 60_000

# A busy machine is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Return a tokenizer of so many pieces that the documents below never use one twice."""
    return Tokenizer([*SPECIALS, *(f"w{number}" for number in range(VOCABULARY - len(SPECIALS)))])


@pytest.fixture(scope="session")
def packer(tokenizer: Tokenizer) -> Packer:
    """Return a packer for sequences of 64."""
    return Packer(tokenizer=tokenizer, length=64)


@pytest.fixture(scope="session")
def make_documents() -> Callable[..., list[Document]]:
    """Return a maker of documents from the lengths of their sentences; every piece in them is another one.

    So a run of pieces tells where it came from.
    """

    def make(lengths: Sequence[Sequence[int]]) -> list[Document]:
        documents, first = [], len(SPECIALS)
        for sentences in lengths:
            bounds = np.concatenate([[0], np.cumsum(sentences)]).astype(np.int64)
            ids = np.arange(first, first + bounds[-1], dtype=np.uint16)
            documents.append(Document(ids=ids, sentences=bounds, words=ids % 3 > 0))
            first += len(ids)
        assert first <= VOCABULARY
        return documents

    return make


@pytest.fixture(scope="session")
def text(make_documents: Callable[..., list[Document]]) -> list[Document]:
    """Return 120 documents of mixed sizes, about 58,000 pieces."""
    rng = np.random.default_rng(2)
    return make_documents([rng.integers(2, 40, size=rng.integers(3, 44)).tolist() for _ in range(115)])
