"""Phrases: runs of words that are one unit of masking (ERNIE, Sun et al. 2019), found among the pieces of a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.text.file_tokenizer import AnyTokenizer

LONGEST = 16
"""Most pieces of a phrase."""

_FACTORS = np.random.default_rng(0).integers(1, 2**63, size=LONGEST, dtype=np.uint64) | np.uint64(1)
_NAME = re.compile(r"\w+(?:[ '’-]\w+)*")


class Phrases:
    """A list of phrases as pieces. A phrase is found at the borders of words, whatever words its pieces make.

    Of phrases that begin at one piece the longest is found, and the search goes on behind it.

    >>> from osbert.text.tokenizer import SPECIALS, Tokenizer
    >>> tokenizer = Tokenizer([*SPECIALS, "new", "york", "##er", "times"])
    >>> phrases = Phrases(["New York", "New York Times"], tokenizer)
    >>> ids = tokenizer.encode("new york times new york new yorker")
    >>> phrases.find(ids, np.array([0, len(ids)])).tolist()
    [[0, 3], [3, 5]]
    """

    def __init__(self, phrases: Iterable[str], tokenizer: AnyTokenizer) -> None:
        """Encode the phrases. Those of one piece, of more than LONGEST, or with unknown pieces are left out."""
        self._continuation = tokenizer.continuation
        known: dict[int, set[bytes]] = {}
        for phrase in phrases:
            # Where pieces include the space before a word, a phrase begins with one but at the start of a text.
            for text in (phrase, f" {phrase}") if tokenizer.spaced else (phrase,):
                ids = tokenizer.encode(text).astype(np.int64)
                if 1 < len(ids) <= LONGEST and tokenizer.unknown not in ids:
                    known.setdefault(len(ids), set()).add(ids.tobytes())
        self._known = dict(sorted(known.items(), reverse=True))
        self._hashes = {
            size: np.unique([_hash_runs(np.frombuffer(piece_bytes, np.int64), size)[0] for piece_bytes in some])
            for size, some in self._known.items()
        }

    def __len__(self) -> int:
        """Return the number of different phrases, as pieces."""
        return sum(map(len, self._known.values()))

    def find(self, ids: NDArray[np.integer], sentences: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the start and end of each phrase in pieces (n,), (F, 2), ascending; none reaches beyond a sentence.

        `sentences` (s + 1,): the piece at which each starts, then n.
        """
        pieces = ids.astype(np.int64)
        begins = np.append(~self._continuation[ids], True)
        sentence = np.repeat(np.arange(len(sentences) - 1), np.diff(sentences))
        spans: list[tuple[int, int]] = []
        for size, some in self._known.items():
            if size > len(pieces):
                continue
            first = np.arange(len(pieces) - size + 1)
            # A phrase consists of whole words, and both of its ends are in one sentence.
            may = begins[first] & begins[first + size] & (sentence[first] == sentence[first + size - 1])
            # Hashes find the candidates; `_is_in` below compares their pieces.
            may &= np.isin(_hash_runs(pieces, size), self._hashes[size])
            spans += [
                (start, start + size) for start in np.flatnonzero(may).tolist() if _is_in(pieces, start, size, some)
            ]
        # At each start the longest phrase comes first.
        spans.sort(key=lambda span: (span[0], -span[1]))
        matches: list[tuple[int, int]] = []
        for start, end in spans:
            if not matches or start >= matches[-1][1]:
                matches.append((start, end))
        return np.array(matches, np.int64).reshape(-1, 2)

    def merge_words(
        self, words: NDArray[np.bool_], ids: NDArray[np.integer], sentences: NDArray[np.integer]
    ) -> NDArray[np.bool_]:
        """Return the word starts (n,) of a text with each phrase as one word."""
        merged = words.copy()
        for start, end in self.find(ids, sentences):
            merged[start], merged[start + 1 : end] = True, False
            if end < len(merged):
                merged[end] = True
        return merged


def find_capitalised(sentences: Iterable[str]) -> Iterator[str]:
    """Yield the runs of two or more capitalised words in sentences, without the first word of each sentence.

    >>> list(find_capitalised(["Then Mary Ann Smith went to New York.", "In London it rained."]))
    ['Mary Ann Smith', 'New York']
    """
    for sentence in sentences:
        words = sentence.split()
        run: list[str] = []
        for word in [*words[1:], ""]:
            name = _NAME.search(word)
            if name is not None and name[0][0].isupper():
                # A sign before a word ends the run before it, and one behind a word ends its own run.
                if name.start() and run:
                    yield from _run(run)
                    run = []
                run.append(name[0])
                if name.end() == len(word):
                    continue
            yield from _run(run)
            run = []


def _run(words: Sequence[str]) -> Iterator[str]:
    if len(words) > 1:
        yield " ".join(words)


def _hash_runs(pieces: NDArray[np.int64], size: int) -> NDArray[np.uint64]:
    """Return a hash of each run of `size` pieces (n - size + 1,), by wrapping products."""
    values = pieces.astype(np.uint64) + np.uint64(1)
    total = np.zeros(len(values) - size + 1, np.uint64)
    for offset in range(size):
        total += values[offset : offset + len(total)] * _FACTORS[offset]
    return total


def _is_in(pieces: NDArray[np.int64], start: int, size: int, some: set[bytes]) -> bool:
    """Return whether a run of pieces is one of `some`: equal hashes do not prove it."""
    return pieces[start : start + size].tobytes() in some
