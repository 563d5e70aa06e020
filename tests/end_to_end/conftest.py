"""A tiny corpus that a tiny model trains on in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

import corpora
from vocabularies import train


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 60 documents on invented topics, one a line."""
    documents = corpora.invented()
    return corpora.build_corpus(tmp_path_factory.mktemp("corpus"), documents, train(documents, vocabulary=120))
