"""Text -> words as BERT sees them: cleaned, CJK apart, lower case without accents, cut at spaces and punctuation.

The steps are those of google-research/bert's BasicTokenizer, in its order and with Python's own Unicode tables. Each
step works on a whole text at once; two tables, filled as characters are met, say what becomes of each character.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate, groupby
from typing import NamedTuple

CJK = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
"""First and last code points of the blocks whose characters each stand alone as a word."""

IDEOGRAPHS = re.compile("([\u3400-\u4dbf\u4e00-\u9fff]+)")
"""Runs of ideographs that no normalisation changes: each is a word, so that such a run needs no further look."""

_PLAIN_WORDS = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]").findall  # complete for printable ASCII
# str.split takes these for spaces; BERT removes them, so that what they stand between becomes one word.
_NOT_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_LONG_RUN = re.compile(r"(?<![^\w\s\x00-\x7f])[^\w\s\x00-\x7f]{64,}")
"""A long run of marks and symbols. Every combining character that a decomposition can give is among them."""
_ASCII_PUNCTUATION = frozenset(map(ord, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"))


def is_cjk(code: int) -> bool:
    """Return whether the character is an ideograph, which stands alone; kana and Hangul are spelt like letters."""
    return any(first <= code <= last for first, last in CJK)


def is_punctuation(code: int) -> bool:
    """Return whether the character is of a Unicode category P, or one of ASCII's signs ("$" and "^" among them)."""
    return code in _ASCII_PUNCTUATION or unicodedata.category(chr(code)).startswith("P")


def chunks(text: str) -> list[str]:
    """Return what stands between spaces, as it is. The words of a text are those of its chunks, one after the other."""
    if (
        "\x1c" in text  # for a short text these seven searches are faster than one by a regular expression
        or "\x1d" in text
        or "\x1e" in text
        or "\x1f" in text
        or "\x0b" in text
        or "\x0c" in text
        or "\x85" in text
    ):
        text = _NOT_SPACES.sub("", text)
    return text.split()


def decompose(text: str) -> str:
    """Return the canonical decomposition (NFD) of a text, in time n log n.

    Python sorts combining characters by insertion, in time n^2 for a run of n, unless they are in order already: long
    runs are therefore sorted first.
    """
    if _LONG_RUN.search(text):
        apart = "".join(unicodedata.normalize("NFD", character) for character in text)
        text = _LONG_RUN.sub(_ordered, apart)
    return unicodedata.normalize("NFD", text)


def _ordered(run: re.Match[str]) -> str:
    """Return a run with each sequence of combining characters sorted by combining class."""
    parts = groupby(run[0], key=lambda character: unicodedata.combining(character) > 0)
    return "".join("".join(sorted(part, key=unicodedata.combining) if combining else part) for combining, part in parts)


class TracedWord(NamedTuple):
    """A word with, for each of its characters, the range of the original text that it came from."""

    text: str
    starts: list[int]
    ends: list[int]


class _Cleaning(dict[int, str | None]):
    """What becomes of a character at first: None goes, spaces become " ", an ideograph gets a space on either side."""

    def __init__(self, *, cjk: bool) -> None:
        self.cjk = cjk

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        category = unicodedata.category(character)
        found: str | None = character
        if character in "\t\n\r" or category == "Zs":
            found = " "
        elif category in ("Cc", "Cf") or code == 0xFFFD:
            found = None
        elif self.cjk and is_cjk(code):
            found = f" {character} "
        self[code] = found
        return found


class _Splitting(dict[int, str | None]):
    """What becomes of a character at last: an accent goes, a punctuation mark gets a space on either side."""

    def __init__(self, *, strip_accents: bool) -> None:
        self.strip_accents = strip_accents

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        found: str | None = character
        if self.strip_accents and unicodedata.category(character) == "Mn":
            found = None
        elif is_punctuation(code):
            found = f" {character} "
        self[code] = found
        return found


class Normalizer:
    """The first half of tokenization: a text's words, normalised."""

    def __init__(self, *, lowercase: bool, strip_accents: bool, cjk: bool) -> None:
        """Prepare; `cjk` sets ideographs apart. google-research/bert strips accents exactly when it lowercases."""
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self._cleaning = _Cleaning(cjk=cjk)
        self._splitting = _Splitting(strip_accents=strip_accents)

    def words(self, text: str) -> list[str]:
        """Return the normalised words of a text; a punctuation mark is a word."""
        if text.isascii() and text.isprintable():
            return _PLAIN_WORDS(text.lower() if self.lowercase else text)
        text = text.translate(self._cleaning)
        if self.lowercase:
            text = text.lower()
        if self.strip_accents:
            text = decompose(text)
        return text.translate(self._splitting).split()

    def traced(self, text: str) -> list[TracedWord]:
        """Return the same words, each character with the range of `text` it came from; slower.

        An accent that goes, and what was removed before it, belongs to the character it stood on. Several characters
        may come from one and the same (the jamo of a Hangul syllable); starts and ends never decrease.
        """
        characters, origins = self._clean_and_trace(text)
        if self.strip_accents:
            characters, origins = _decompose_and_trace(characters, origins)
        words: list[TracedWord] = []
        word = TracedWord("", [], [])
        found: list[str] = []
        for character, origin in zip([*characters, " "], [*origins, len(text)]):
            became = self._splitting[ord(character)]
            if became is None:
                if word.ends:
                    word.ends[-1] = max(word.ends[-1], origin + 1)
                continue
            for kept in became:
                if not kept.isspace():
                    found.append(kept)
                    word.starts.append(origin)
                    word.ends.append(origin + 1)
                elif found:
                    words.append(_finished("".join(found), word))
                    word, found = TracedWord("", [], []), []
        return words

    def _clean_and_trace(self, text: str) -> tuple[str, list[int]]:
        cleaned = [(kept, origin) for origin, raw in enumerate(text) for kept in self._cleaning[ord(raw)] or ""]
        characters = "".join(kept for kept, _ in cleaned)
        if not self.lowercase:
            return characters, [origin for _, origin in cleaned]
        # A character's lower case has the same length in every context: only sigma's form depends on its neighbours.
        return characters.lower(), [origin for kept, origin in cleaned for _ in kept.lower()]


def _decompose_and_trace(text: str, origins: list[int]) -> tuple[str, list[int]]:
    """Return the text in canonical decomposition (NFD) with the origin of each character.

    Each character decomposes by itself; then every run of combining characters is sorted by combining class.
    """
    decomposed = [
        (part, origin) for character, origin in zip(text, origins) for part in unicodedata.normalize("NFD", character)
    ]
    ordered: list[tuple[str, int]] = []
    for combining, run in groupby(decomposed, key=lambda pair: unicodedata.combining(pair[0]) > 0):
        parts = list(run)
        ordered += sorted(parts, key=lambda pair: unicodedata.combining(pair[0])) if combining else parts
    return "".join(part for part, _ in ordered), [origin for _, origin in ordered]


def _finished(text: str, word: TracedWord) -> TracedWord:
    return TracedWord(text, list(accumulate(word.starts, max)), list(accumulate(word.ends, max)))
