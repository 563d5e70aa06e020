"""A portion of text -> pieces: what one worker process does to a few megabytes of chunks at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from osbert.text.sentences import split
from osbert.text.tokenizer import Tokenizer

PORTION = 1 << 21
"""Characters after which a portion is full."""

_SENTENCE_END = re.compile(r"[。！？]|[.!?…][\"'”’»)\]]*(?:\s|$)")

Portion = Sequence[tuple[str, bool]]
"""Chunks of text in order, each with True where it opens a document."""
Splitter = Callable[[str], list[tuple[int, int]]]


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The pieces of one portion: n pieces, s sentences, d documents, l lines; V the vocabulary's size.

    `ids`: n little-endian ids in the tokenizer's type. `sentences` (s,): the piece each begins at. `documents` (d,):
    the sentence each begins at; s when the document's text has yet to come. `words`: bits of word starts, packed.
    `hashes` (l,): of the stripped lines that gave pieces. `lines` (l,): the sentence each begins at. `counts` (V,).
    """

    ids: bytes
    tokens: int
    sentences: NDArray[np.uint32]
    documents: NDArray[np.uint32]
    words: NDArray[np.uint8]
    hashes: NDArray[np.uint64]
    lines: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    text_bytes: int
    """Bytes of the text in UTF-8, without empty lines."""
    sentence_ends: bool
    """Whether a sentence end was seen."""


def encode_portion(portion: Portion, tokenizer: Tokenizer, *, splitter: Splitter = split) -> Encoded:
    """Encode chunks line by line and sentence by sentence; sentences and lines without pieces leave no trace."""
    encode = tokenizer.encode_bytes
    pieces: list[bytes] = []
    documents: list[int] = []
    hashes: list[bytes] = []
    lines: list[int] = []
    text_bytes = 0
    for text, opens in portion:
        if opens:
            documents.append(len(pieces))
        for line in text.split("\n"):
            line = line.strip()
            if not line:
                continue
            before = len(pieces)
            pieces += [found for start, end in splitter(line) if (found := encode(line[start:end]))]
            data = line.encode()
            text_bytes += len(data) + 1
            if len(pieces) > before:
                lines.append(before)
                hashes.append(blake2b(data, digest_size=8).digest())
    joined = b"".join(pieces)
    ids = np.frombuffer(joined, tokenizer.id_type)
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces)) // tokenizer.id_type.itemsize
    return Encoded(
        ids=joined,
        tokens=len(ids),
        sentences=(np.cumsum(lengths) - lengths).astype(np.uint32),
        documents=np.unique(np.array(documents, np.uint32)),
        words=np.packbits(~tokenizer.continuation[ids]),
        hashes=np.frombuffer(b"".join(hashes), "<u8"),
        lines=np.array(lines, np.uint32),
        counts=np.bincount(ids, minlength=len(tokenizer)).astype(np.uint32),
        text_bytes=text_bytes,
        sentence_ends=any(_SENTENCE_END.search(text) for text, _ in portion),
    )
