"""Encodes text into pieces, a portion at a time, on all cores; the number of cores does not affect the result.

A portion, a few megabytes of chunks, is the unit of work. `encode_document` is the simple definition of the encoding.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from osbert.corpus.state import BuildSettings
from osbert.errors import UserError
from osbert.processes import end_with_parent, holding_interrupts
from osbert.text.document import Document
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.sentences import SIGNS, split
from osbert.text.words import Segmenter, word_finder

PORTION = 1 << 21
"""Characters after which a portion is complete."""

_SENTENCE_END = re.compile(rf"[{SIGNS}]|[.!?…][\"'”’»)\]]*(?:\s|$)")

Portion = Sequence[tuple[str, bool]]
"""Chunks of text in order, each with True if it opens a document."""
PART = 1 << 19
"""Characters per job of a worker: small, so that no worker waits long for the others at the end."""

Label = TypeVar("Label")


@dataclass(frozen=True, kw_only=True)
class PortionTokens:
    """The pieces of one portion: n pieces, s sentences, d documents, l lines, V pieces of vocabulary.

    `ids`: n little-endian ids of the tokenizer's type. `sentences` (s,): the first piece of each. `documents` (d,): the
    first sentence of each; s if the text of the document is still to come. `words`: packed bits of word starts;
    `capitals`: of those of words with a capital letter, None if they were not to be marked.
    `hashes` (l,): of the stripped lines with pieces. `lines` (l,): the first sentence of each. `counts` (V,): of each
    piece.
    """

    ids: bytes
    tokens: int
    sentences: NDArray[np.uint32]
    documents: NDArray[np.uint32]
    words: NDArray[np.uint8]
    capitals: NDArray[np.uint8] | None
    hashes: NDArray[np.uint64]
    lines: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    text_bytes: int
    """Bytes of the text in UTF-8, without empty lines."""
    sentence_ends: bool
    """Whether any sentence end was found."""


def encode_portion(
    portion: Portion,
    tokenizer: AnyTokenizer,
    *,
    segment: Segmenter | None = None,
    phrases: Any = None,
    capitals: bool = False,
) -> PortionTokens:
    """Encode chunks by line and by sentence; sentences and lines without pieces are dropped.

    `segment` splits runs of ideographs into words; None makes each ideograph a word. `phrases` become one word each.
    `capitals`: mark capitalised words. If the tokenizer marks spaces, a sentence starts with one space whenever any
    space separates it from the sentence before it.
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
            if tokenizer.spaced:
                sentences += _space_sentences(line, first=opens and len(sentences) == documents[-1])
            else:
                sentences += [line[start:end] for start, end in split(line)]
    pieces = tokenizer.encode_many(sentences)
    joined = b"".join(pieces)
    ids = np.frombuffer(joined, tokenizer.id_type)
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces)) // tokenizer.id_type.itemsize
    sentences_before = np.concatenate([[0], np.cumsum(lengths > 0)])  # sentences with pieces before each sentence
    # First kept sentence of each line; a line is kept if the next line starts later.
    firsts = sentences_before[np.array([*lines, len(sentences)])]
    line_mask = firsts[:-1] < firsts[1:]
    if segment is None:
        words = ~tokenizer.continuation[ids]
    else:
        words = np.frombuffer(b"".join(map(word_finder(tokenizer, segment), sentences)), np.bool_)
    begins = (np.cumsum(lengths) - lengths)[lengths > 0]
    if phrases is not None:
        words = phrases.merge_words(words, ids, np.append(begins, len(ids)))
    return PortionTokens(
        ids=joined,
        tokens=len(ids),
        sentences=begins.astype(np.uint32),
        documents=np.unique(sentences_before[np.array(documents, np.int64)]).astype(np.uint32),
        words=np.packbits(words),
        capitals=np.packbits(_capitals(sentences, tokenizer)) if capitals else None,
        hashes=np.frombuffer(b"".join(digests), "<u8")[line_mask],
        lines=firsts[:-1][line_mask].astype(np.uint32),
        counts=np.bincount(ids, minlength=len(tokenizer)).astype(np.uint32),
        text_bytes=text_bytes,
        sentence_ends=any(_SENTENCE_END.search(text) for text, _ in portion),
    )


def _space_sentences(line: str, *, first: bool) -> Iterator[str]:
    """Yield the sentences of a line, with a space before each that text precedes; `first`: the first line of a text."""
    for start, end in split(line):
        yield " " * (line[start - 1].isspace() if start else not first) + line[start:end]


def _capitals(sentences: Sequence[str], tokenizer: AnyTokenizer) -> NDArray[np.bool_]:
    """Return for each piece of the sentences whether it starts a word whose first letter is a capital."""
    flags = [np.zeros(0, np.bool_)]
    for sentence in sentences:
        encoding = tokenizer.encode_with_offsets(sentence)
        firsts = ~tokenizer.continuation[encoding.ids]
        # Some tokenizers count the space before a word as a part of it.
        begins = [sentence[start:end].lstrip()[:1] for start, end in zip(encoding.starts, encoding.ends, strict=True)]
        flags.append(firsts & np.array([letter.isupper() for letter in begins], np.bool_))
    return np.concatenate(flags)


def encode_document(text: str, tokenizer: AnyTokenizer) -> Document:
    """Return the pieces of a text as one document; a sentence without pieces (control characters alone) is left out.

    If pieces include the space before a word, every sentence but the first begins with a space if the text has one
    there. This is the simple definition of `encode_portion`, which handles many chunks at once; tests compare the two.
    """
    encoded = []
    for number, (start, end) in enumerate(split(text)):
        space = tokenizer.spaced and number > 0 and text[start - 1].isspace()
        encoded.append(tokenizer.encode_bytes(" " * space + text[start:end]))
    lengths = [len(sentence) // tokenizer.id_type.itemsize for sentence in encoded if sentence]
    ids = np.frombuffer(b"".join(encoded), tokenizer.id_type).astype(np.int32)
    return Document(ids=ids, sentences=np.cumsum([0, *lengths], dtype=np.int64), words=~tokenizer.continuation[ids])


def encode_in_order(
    portions: Iterable[tuple[Portion, Label]], tokenizer: AnyTokenizer, settings: BuildSettings, *, workers: int
) -> Iterator[tuple[Sequence[PortionTokens], Label]]:
    """Yield each portion encoded, in parts, with its label, in order; at most 2 * workers + 1 portions are in memory.

    Raises UserError if a worker dies, and any error from reading the portions.
    """
    if workers == 1:
        marks = settings.marks(tokenizer)
        for portion, label in portions:
            yield [encode_portion(portion, tokenizer, **marks)], label
        return
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(tokenizer, settings))
    waiting: deque[tuple[list[Future[PortionTokens]], Label]] = deque()
    try:
        for portion, label in portions:
            with holding_interrupts():  # the first jobs start the processes
                waiting.append(([pool.submit(_encode, part) for part in _parts(portion)], label))
            del portion  # only the pool holds the text now, and only until it is sent
            # Enough portions ahead to keep all workers busy while the oldest one is finished.
            if len(waiting) > 2 * workers:
                yield _result(waiting)
        while waiting:
            yield _result(waiting)
    except BrokenProcessPool as error:
        # A worker that was being started meanwhile is not known to the pool, which would wait for it for ever.
        for child in set(multiprocessing.active_children()) - before:
            child.kill()
        raise UserError(
            "A worker process was killed, most often because memory ran out. Finished shards are kept. Give the "
            f"same command again with fewer --workers (now {workers}).",
            code="out-of-memory",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _parts(portion: Portion) -> Iterator[Portion]:
    part: list[tuple[str, bool]] = []
    size = 0
    for chunk in portion:
        part.append(chunk)
        size += len(chunk[0])
        if size >= PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _result(waiting: deque[tuple[list[Future[PortionTokens]], Label]]) -> tuple[list[PortionTokens], Label]:
    futures, label = waiting.popleft()
    return [future.result() for future in futures], label


_tokenizer: AnyTokenizer  # of a worker process; these are set once when it begins
_marks: dict[str, Any]


def _begin(tokenizer: AnyTokenizer, settings: BuildSettings) -> None:
    global _tokenizer, _marks
    _tokenizer, _marks = tokenizer, settings.marks(tokenizer)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker has a core of its own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    end_with_parent()


def _encode(portion: Portion) -> PortionTokens:
    return encode_portion(portion, _tokenizer, **_marks)
