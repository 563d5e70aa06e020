"""A tiny corpus that a tiny model trains on in seconds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from osbert.corpus.build import Build
from osbert.corpus.readers import Reading
from osbert.corpus.state import BuildSettings
from osbert.interop.tokenizer_files import write_tokenizer
from osbert.text.train import train


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 60 documents on invented topics, one a line."""
    rng = random.Random(0)
    beginnings, ends = ("ba", "ke", "lo", "mi", "nu", "pa", "ri", "so"), ("da", "fe", "gi", "ho", "ju", "la")
    words = [first + second for first in beginnings for second in ends]
    documents = []
    for _ in range(60):
        topic = rng.sample(words, 12)
        sentences = [" ".join(rng.choice(topic) for _ in range(rng.randint(4, 9))) for _ in range(8)]
        documents.append(" ".join(f"{sentence.capitalize()}." for sentence in sentences))
    folder = tmp_path_factory.mktemp("corpus")
    source = folder / "source.txt"
    source.write_text("\n".join(documents) + "\n", encoding="utf-8")
    tokenizer = train(documents, vocabulary=120)
    settings = BuildSettings(reading=Reading(documents="line"))
    Build.prepare([source], tokenizer=tokenizer, folder=folder / "corpus", settings=settings).run()
    write_tokenizer(tokenizer, folder / "corpus")
    return folder / "corpus"
