"""A tiny encoder, a task that it can learn, and a run fine-tuned on it; a corpus."""

from pathlib import Path

import pytest

import corpora
from reviews import encoder, reviews, run, settings, table
from vocabularies import train

__all__ = ["encoder", "reviews", "run", "settings", "table", "tiny_corpus"]


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 60 documents on invented topics, one a line."""
    documents = corpora.invented()
    return corpora.build_corpus(tmp_path_factory.mktemp("corpus"), documents, train(documents, vocabulary=120))
