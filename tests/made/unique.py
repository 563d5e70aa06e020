"""Documents whose every piece is another one, so that a run of pieces tells where it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.objectives import Objective
from osbert.text.document import Document
from osbert.text.tokenizer import SPECIALS, Tokenizer

VOCABULARY = 60_000


def tokenizer() -> Tokenizer:
    """Return a tokenizer of so many pieces that the documents never use one twice."""
    return Tokenizer([*SPECIALS, *(f"w{number}" for number in range(VOCABULARY - len(SPECIALS)))])


def documents(lengths: Sequence[Sequence[int]], words: Callable[[np.ndarray[Any, Any]], Any]) -> list[Document]:
    """Return documents with sentences of these lengths; `words`: ids (n,) -> which of them start a word."""
    found, first = [], len(SPECIALS)
    for sentences in lengths:
        bounds = np.concatenate([[0], np.cumsum(sentences)]).astype(np.int64)
        ids = np.arange(first, first + bounds[-1], dtype=np.uint16)
        found.append(Document(ids=ids, sentences=bounds, words=words(ids)))
        first += len(ids)
    assert first <= VOCABULARY
    return found


def texts(example: Example) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces of A and B."""
    first, second = (example.ids[(example.segments == segment) & ~example.special] for segment in (0, 1))
    return first, second


def pairs(objective: Objective, documents: list[Document], packer: Packer, seed: int = 0) -> list[Example]:
    """Return the sequences that an objective makes of documents."""
    examples = objective.examples(documents, packer, np.random.default_rng(seed))
    assert examples is not None
    return list(examples)
