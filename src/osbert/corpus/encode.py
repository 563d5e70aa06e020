"""A portion of text -> pieces: what one worker process does to a few megabytes of chunks at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.sentences import split
from osbert.text.words import Segmenter, word_finder

PORTION = 1 << 21
"""Characters after which a portion is full."""

_SENTENCE_END = re.compile(r"[。！？]|[.!?…][\"'”’»)\]]*(?:\s|$)")

Portion = Sequence[tuple[str, bool]]
"""Chunks of text in order, each with True where it opens a document."""


@dataclass(frozen=True, kw_only=True)
class PortionTokens:
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


def encode_portion(portion: Portion, tokenizer: AnyTokenizer, *, segment: Segmenter | None = None) -> PortionTokens:
    """Encode chunks line by line and sentence by sentence; sentences and lines without pieces leave no trace.

    `segment` cuts runs of ideographs into words; None makes each a word of its own. Where pieces have the space before
    them, a sentence begins with one, whatever space there is between it and the sentence before it.
    """
    sentences: list[str] = []
    documents: list[int] = []
    lines: list[int] = []
    digests: list[bytes] = []
    text_bytes = 0
    for text, opens in portion:
        if opens:
            documents.append(len(sentences))
        for line in text.split("\n"):
            line = line.strip()
            if not line:
                continue
            data = line.encode()
            text_bytes += len(data) + 1
            lines.append(len(sentences))
            digests.append(blake2b(data, digest_size=8).digest())
            if not tokenizer.spaced:
                sentences += [line[start:end] for start, end in split(line)]
                continue
            first = opens and len(sentences) == documents[-1]
            for start, end in split(line):
                space = line[start - 1].isspace() if start else not first
                sentences.append(" " * space + line[start:end])
    pieces = tokenizer.encode_many(sentences)
    joined = b"".join(pieces)
    ids = np.frombuffer(joined, tokenizer.id_type)
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces)) // tokenizer.id_type.itemsize
    kept = np.concatenate([[0], np.cumsum(lengths > 0)])  # sentences with pieces before each sentence
    firsts = kept[np.array([*lines, len(sentences)])]
    found = firsts[:-1] < firsts[1:]
    if segment is None:
        words = ~tokenizer.continuation[ids]
    else:
        words = np.frombuffer(b"".join(map(word_finder(tokenizer, segment), sentences)), np.bool_)
    return PortionTokens(
        ids=joined,
        tokens=len(ids),
        sentences=(np.cumsum(lengths) - lengths)[lengths > 0].astype(np.uint32),
        documents=np.unique(kept[np.array(documents, np.int64)]).astype(np.uint32),
        words=np.packbits(words),
        hashes=np.frombuffer(b"".join(digests), "<u8")[found],
        lines=firsts[:-1][found].astype(np.uint32),
        counts=np.bincount(ids, minlength=len(tokenizer)).astype(np.uint32),
        text_bytes=text_bytes,
        sentence_ends=any(_SENTENCE_END.search(text) for text, _ in portion),
    )
