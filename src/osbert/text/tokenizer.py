"""Tokenizer: text -> ids and back, exactly as google-research/bert, made fast by caches.

A chunk between two spaces always gives the same ids, and a few hundred thousand chunks make up nearly all of any text.
So a text is split by str.split, each chunk is looked up, and the bytes of its ids are joined: three calls for a text of
any length. A new chunk is normalised and split into words, which have their own cache. Caches are bounded and drop
entries that were not used for a long time.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from osbert.errors import Problems
from osbert.text.normalize import IDEOGRAPHS, Normalizer, chunks

LONGEST_WORD = 200
"""Characters of the longest word that is split; longer ones are [UNK], as in google-research/bert."""
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

SENTINEL = "<extra_id_{}>"
"""Sentinel number 0, 1, 2, ... (file_tokenizer.py). Their ids descend."""

CHUNKS = 1 << 18
"""Chunks in a generation of the cache; two generations are at most about 100 MB per process."""
WORDS = 1 << 16
"""The same for words, and for chunks with their offsets."""
CACHED = 32
"""Characters of the longest chunk that is cached; longer ones rarely recur."""

GATHERED = 1 << 13
"""Characters of short texts that are encoded together."""

_BORDER = "\0"
_FREQUENT = ".,'\"-()!?"
"""Signs that are separated in gathered texts, so that "end.", "end" and "End," share one cache entry."""
_CHUNK = re.compile(r"[^ \t\n\r]+")

Value = TypeVar("Value")

ChunkPieces = tuple[list[int], list[int], list[int], list[int]]
"""ids, starts, ends, words; positions and words count from the beginning of the chunk."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The ids of a sequence's special pieces: one text is `before a after`, a pair `before a between b after`.

    | family | before | between | after |
    |---|---|---|---|
    | BERT, ALBERT | `[CLS]` | `[SEP]` | `[SEP]` |
    | RoBERTa | `<s>` | `</s></s>` | `</s>` |
    | GPT, GPT-2 (fine-tuning) | `_start_` | `_delimiter_` | `_classify_` |
    | GPT-2 (pretraining) | | end of text | |
    | GPT (pretraining) | | | |
    | T5 | | `</s>` | `</s>` |
    | XLNet | | `<sep>` | `<sep><cls>` |

    `second_segment`: segment of a pair's second text and of the pieces after it; all others have segment 0.
    `last_segment`: segment of the last special piece if it belongs to neither text (XLNet: 2). `summary`: the token
    whose hidden state represents the whole sequence.

    >>> roberta = Form(before=(0,), between=(2, 2), after=(2,), second_segment=0)
    >>> roberta.specials(1), roberta.specials(2), roberta.second(10)
    (2, 4, 13)
    """

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    second_segment: int = 1
    last_segment: int | None = None
    summary: Literal["first", "last"] = "first"

    @property
    def end(self) -> int | None:
        """Return the piece that ends a generated text, None if the form has none.

        >>> Form(before=(2,), between=(3,), after=(3,)).end
        3
        """
        return next(iter((*self.after, *self.between)), None)

    def specials(self, texts: int) -> int:
        """Return the number of special pieces in a sequence of `texts` texts."""
        return len(self.before) + (texts - 1) * len(self.between) + len(self.after)

    def second(self, first: int) -> int:
        """Return the position of the second text in a pair whose first text has `first` pieces."""
        return len(self.before) + first + len(self.between)


class WordPiece:
    """The second half of tokenization: normalised words to pieces."""

    def __init__(self, vocabulary: Sequence[str], *, unknown: int) -> None:
        """Prepare for a vocabulary whose pieces inside words begin with "##"; `unknown` is the id of [UNK]."""
        self.unknown = unknown
        self._first = {piece: index for index, piece in enumerate(vocabulary)}
        # Without "##", so that substrings of a word can be looked up directly.
        self._following = {piece[2:]: index for piece, index in self._first.items() if continues(piece)}
        self._longest = max(map(len, vocabulary))

    def cut(self, word: str, *, inside: bool = False) -> list[tuple[int, int]]:
        """Return the (id, end) of each piece; `end` is the position after it in the word.

        A word with a part that no piece matches is [UNK] as a whole. `inside`: `word` is the rest of a longer word.

        >>> pieces = WordPiece(["[UNK]", "un", "##aff", "##able", "##a"], unknown=0)
        >>> pieces.cut("unaffable"), pieces.cut("unfair")
        ([(1, 2), (2, 5), (3, 9)], [(0, 6)])
        """
        length = len(word)
        if length > LONGEST_WORD:
            return [(self.unknown, length)]
        pieces: list[tuple[int, int]] = []
        known = self._following if inside else self._first
        start = 0
        while start < length:
            for end in range(min(length, start + self._longest), start, -1):
                index = known.get(word[start:end])
                if index is not None:
                    break
            else:
                return [(self.unknown, length)]
            pieces.append((index, end))
            known = self._following
            start = end
        return pieces


def continues(piece: str) -> bool:
    """Return whether a piece continues a word; "##" itself does not."""
    return len(piece) > 2 and piece.startswith("##")


@dataclass(frozen=True)
class Encoding:
    """The n pieces of a text and their ranges in it.

    `ids` (n,). `starts`, `ends` (n,): characters of the original text, starts and ends never decreasing. `words` (n,):
    index of each piece's word (between spaces and punctuation), from 0. All int32.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    words: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)


class _Cache(dict[str, Value]):
    """Computes missing entries and keeps them, in two generations of at most `most` entries each.

    When the young generation is full it replaces the old one; an old entry that is used becomes young again.
    """

    def __init__(self, compute: Callable[[str], Value], *, most: int) -> None:
        self.compute = compute
        self.most = most
        self.old: dict[str, Value] = {}

    def __missing__(self, key: str) -> Value:
        value = self.old.get(key)
        if value is None:
            value = self.compute(key)
        # Lookups of young entries never come here: dict calls __missing__ only for missing keys.
        if len(key) <= CACHED:
            if len(self) >= self.most:
                self.old = dict(self)
                self.clear()
            self[key] = value
        return value


class Tokenizer:
    """A vocabulary and the settings of normalisation. Two tokenizers are equal if their fingerprints are."""

    spaced = False
    """Whether a word's first piece includes the space before it."""

    def __init__(
        self, vocabulary: Sequence[str], *, lowercase: bool = True, strip_accents: bool | None = None, cjk: bool = True
    ) -> None:
        """Use the pieces, in the order of their ids.

        `strip_accents` None means the value of `lowercase`; `cjk` makes each ideograph a word.

        Raises UserError if a special piece is missing or a piece is repeated.
        """
        self.vocabulary = tuple(vocabulary)
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.cjk = cjk
        self._ids = _index_pieces(self.vocabulary)
        self.pad, self.unknown, self.cls, self.sep, self.mask = (self._ids[special] for special in SPECIALS)
        self.form = Form(before=(self.cls,), between=(self.sep,), after=(self.sep,))
        self.continuation: NDArray[np.bool_] = np.array([continues(piece) for piece in self.vocabulary])
        self.id_type = np.dtype("<u2" if len(self.vocabulary) <= 1 << 16 else "<u4")
        self._id_bytes = [index.to_bytes(self.id_type.itemsize, "little") for index in range(len(self.vocabulary))]
        settings = [lowercase, self.strip_accents, cjk, self.vocabulary]
        self.fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
        self._normalizer = Normalizer(lowercase=lowercase, strip_accents=self.strip_accents, cjk=cjk)
        self._wordpiece = WordPiece(self.vocabulary, unknown=self.unknown)
        self._word_bytes = _Cache(self._encode_word, most=WORDS).__getitem__
        self._chunk_bytes = _Cache(self._encode_chunk, most=CHUNKS).__getitem__
        self._gathered_bytes = _Cache(self._encode_gathered_chunk, most=CHUNKS).__getitem__
        self._chunk_pieces = _Cache(self._trace_chunk, most=WORDS).__getitem__

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __eq__(self, other: object) -> bool:
        """Return whether the other one encodes every text to the same ids."""
        return isinstance(other, Tokenizer) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[object, ...]]:
        """Pickle the vocabulary and the settings without the caches."""
        settings = {"lowercase": self.lowercase, "strip_accents": self.strip_accents, "cjk": self.cjk}
        return partial(Tokenizer, self.vocabulary, **settings), ()

    def encode(self, text: str) -> NDArray[np.int32]:
        """Return the ids of a text (n,), without specials: google-research/bert's FullTokenizer, piece for piece.

        "[MASK]" and the like in the text are tokenized like any text.
        """
        return np.frombuffer(self.encode_bytes(text), self.id_type).astype(np.int32)

    def encode_bytes(self, text: str) -> bytes:
        """Return the same ids as little-endian bytes of `id_type`, the fastest form, for building a corpus."""
        return b"".join(map(self._chunk_bytes, chunks(text)))

    def encode_many(self, texts: Sequence[str]) -> list[bytes]:
        """Return `encode_bytes` of each text; faster for many short, mostly ASCII texts.

        ASCII texts are joined and encoded as one; the border between two becomes [PAD], which no text contains.
        """
        id_bytes = [b""] * len(texts)
        gathered: list[int] = []
        size = 0
        for index, text in enumerate(texts):
            if not text.isascii() or _BORDER in text:
                id_bytes[index] = self.encode_bytes(text)
                continue
            gathered.append(index)
            size += len(text)
            if size >= GATHERED:
                self._encode_gathered(texts, gathered, id_bytes)
                gathered, size = [], 0
        if gathered:
            self._encode_gathered(texts, gathered, id_bytes)
        return id_bytes

    def encode_words(self, text: str, words: Iterable[tuple[int, int]]) -> list[bytes]:
        """Return `encode_bytes` of each word [start, end) of a text by itself."""
        return self.encode_many([text[start:end] for start, end in words])

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with the range of each piece in the original text.

        text[start:end] normalises to the piece, unless the piece is [UNK] (then it is the word) or the border of two
        pieces is inside one original character (the jamo of a Hangul syllable; then both have its range).
        """
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        words: list[int] = []
        word = 0
        for chunk in _CHUNK.finditer(text):
            offset = chunk.start()
            chunk_ids, chunk_starts, chunk_ends, chunk_words = self._chunk_pieces(chunk[0])
            ids += chunk_ids
            starts += [offset + start for start in chunk_starts]
            ends += [offset + end for end in chunk_ends]
            words += [word + index for index in chunk_words]
            if chunk_words:
                word += chunk_words[-1] + 1
        return Encoding(*(np.array(column, np.int32) for column in (ids, starts, ends, words)))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id."""
        return [self.vocabulary[index] for index in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the pieces: continuing pieces are joined to their word, all others separated by spaces."""
        tokens = self.tokens(ids)
        return "".join(token[2:] if continues(token) else f" {token}" for token in tokens).removeprefix(" ")

    def _encode_gathered(self, texts: Sequence[str], indices: Sequence[int], id_bytes: list[bytes]) -> None:
        # The spaces make the border a chunk of its own.
        text = f" {_BORDER} ".join([texts[index] for index in indices])
        if self.lowercase:
            text = text.lower()
        for sign in _FREQUENT:
            if sign in text:
                text = text.replace(sign, f" {sign} ")
        joined = b"".join(map(self._gathered_bytes, chunks(text)))
        size = self.id_type.itemsize
        # Indices of [PAD], in bytes.
        borders = np.flatnonzero(np.frombuffer(joined, self.id_type) == self.pad) * size
        start = 0
        for index, end in zip(indices, [*borders.tolist(), len(joined)]):
            id_bytes[index] = joined[start:end]
            start = end + size

    def _encode_gathered_chunk(self, chunk: str) -> bytes:
        if chunk.isalnum():  # ASCII and in its final case already: a word as it stands
            return self._encode_word(chunk)
        return self._id_bytes[self.pad] if chunk == _BORDER else self._encode_chunk(chunk)

    def _encode_word(self, word: str) -> bytes:
        return b"".join([self._id_bytes[index] for index, _ in self._wordpiece.cut(word)])

    def _encode_chunk(self, chunk: str) -> bytes:
        if self.cjk and not chunk.isascii():
            runs = IDEOGRAPHS.split(chunk)  # runs of ideographs are at the odd places
            if len(runs) > 1:
                # A string is iterated by character: each ideograph is a word.
                return b"".join(
                    b"".join(map(self._word_bytes, run)) if index % 2 else self._chunk_bytes(run)
                    for index, run in enumerate(runs)
                )
        return b"".join(map(self._word_bytes, self._normalizer.words(chunk)))

    def _trace_chunk(self, chunk: str) -> ChunkPieces:
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        words: list[int] = []
        for number, word in enumerate(self._normalizer.trace_words(chunk)):
            begin = 0
            for index, end in self._wordpiece.cut(word.text):
                ids.append(index)
                starts.append(word.starts[begin])
                ends.append(word.ends[end - 1])
                words.append(number)
                begin = end
        return ids, starts, ends, words


def _index_pieces(vocabulary: Sequence[str]) -> dict[str, int]:
    ids = {piece: index for index, piece in enumerate(vocabulary)}
    problems = Problems(heading=f"A vocabulary of {len(vocabulary):,} pieces cannot be used")
    for special in SPECIALS:
        if special not in ids:
            problems.add(
                f"the special piece {special} is missing: add it as a line of its own", code="unusable-tokenizer"
            )
    if len(ids) < len(vocabulary):
        for piece, count in Counter(vocabulary).items():
            if count > 1:
                problems.add(
                    f"the piece {piece!r} occurs {count} times, last as id {ids[piece]}: keep one",
                    code="unusable-tokenizer",
                )
    problems.stop_if_any()
    return ids
