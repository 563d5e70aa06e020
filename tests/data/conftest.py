"""A tokenizer, documents whose every piece is unique, and a corpus in memory for the tests of packing and loading."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import unique
from forked import forked
from osbert.corpus.shards import Part, ShardBlock
from osbert.text.document import Document, Documents
from osbert.text.tokenizer import Tokenizer

__all__ = ["forked"]


class FakeCorpus:
    """Documents in memory, one shard, cut at sentence starts as the real corpus is."""

    folder = Path("fake")
    mixed = False

    def __init__(self, documents: Sequence[Document]) -> None:
        self.sources = documents
        self.documents = len(documents)
        self.tokens = sum(map(len, documents))
        self.parts = [Part(name="fake", shards=1, tokens=self.tokens, fraction=1.0)]
        self.places = [
            (number, sentence) for number, source in enumerate(documents) for sentence in range(_sentences(source))
        ]

    def blocks(self, tokens: int = 65536) -> list[ShardBlock]:
        blocks, first, size = [], 0, 0
        for place, (number, sentence) in enumerate(self.places):
            length = int(np.diff(self.sources[number].sentences)[sentence])
            if place > first and size + length > tokens:
                blocks.append(ShardBlock(0, first, place))
                first, size = place, 0
            size += length
        return [*blocks, ShardBlock(0, first, len(self.places))] if self.places else []

    def size(self, block: ShardBlock) -> int:
        return len(self.read(block).ids)

    def prepare(self, blocks: object) -> None:
        """Fetch nothing: all blocks are here."""

    def read(self, block: ShardBlock) -> Documents:
        parts = itertools.groupby(self.places[block.first : block.last], key=lambda place: place[0])
        return Documents.of(
            [
                replace(_part(self.sources[number], [sentence for _, sentence in group]), source=number)
                for number, group in parts
            ]
        )


def _sentences(document: Document) -> int:
    return len(document.sentences) - 1


def _part(document: Document, sentences: list[int]) -> Document:
    bounds = document.sentences[sentences[0] : sentences[-1] + 2]
    pieces = slice(bounds[0], bounds[-1])
    return Document(ids=document.ids[pieces], sentences=bounds - bounds[0], words=document.words[pieces])


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return unique.tokenizer()


@pytest.fixture(scope="session")
def make_documents() -> Callable[..., list[Document]]:
    """Return a maker of documents from the lengths of their sentences; half of the pieces start a word."""

    def make(lengths: Sequence[Sequence[int]], *, seed: int = 0) -> list[Document]:
        rng = np.random.default_rng(seed)
        return unique.documents(lengths, lambda ids: rng.random(len(ids)) < 0.5)

    return make


@pytest.fixture(scope="session")
def text(make_documents: Callable[..., list[Document]]) -> list[Document]:
    """Return some 60 documents of mixed sizes, about 30,000 pieces."""
    rng = np.random.default_rng(1)
    return make_documents([rng.integers(1, 50, size=rng.integers(5, 40)).tolist() for _ in range(60)])


@pytest.fixture(scope="session")
def make_corpus() -> Callable[[Sequence[Document]], FakeCorpus]:
    """Return a maker of corpora in memory."""
    return FakeCorpus
