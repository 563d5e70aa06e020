"""Text -> BERT's words: cleaned, ideographs separated, lower case without accents, split at spaces and punctuation.

The steps are those of google-research/bert's BasicTokenizer, in its order and with Python's own Unicode tables. Each
step works on a whole text at once with str.translate; its two tables are filled as characters occur.
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
"""First and last code points of the blocks whose characters are words of their own."""

IDEOGRAPHS = re.compile("([\u3400-\u4dbf\u4e00-\u9fff]+)")
"""Runs of ideographs that normalisation does not change. Each ideograph is a word, so they need no further work."""

_PLAIN_WORDS = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]").findall  # complete for printable ASCII
# str.split treats these as spaces; BERT removes them, which joins their neighbours to one word.
_NOT_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_LONG_RUN = re.compile(r"(?<![^\w\s\x00-\x7f])[^\w\s\x00-\x7f]{64,}")
"""A long run of marks and symbols, which include every combining character that a decomposition can yield."""
_ASCII_PUNCTUATION = frozenset(map(ord, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"))


def is_cjk(code: int) -> bool:
    """Return whether the character is an ideograph, a word by itself; kana and Hangul are treated as letters."""
    return any(first <= code <= last for first, last in CJK)


def is_punctuation(code: int) -> bool:
    """Return whether the character has a Unicode category P or is an ASCII symbol ("$" and "^" among them)."""
    return code in _ASCII_PUNCTUATION or unicodedata.category(chr(code)).startswith("P")


def chunks(text: str) -> list[str]:
    """Split a text at spaces, without normalisation. The words of a text are those of its chunks, in order."""
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


def is_blank(text: str) -> bool:
    """Return whether a text has only spaces, and control and format characters, such as U+200B (categories Cc, Cf)."""
    return all(character.isspace() or unicodedata.category(character) in ("Cc", "Cf") for character in text)


def decompose(text: str) -> str:
    """Return the canonical decomposition (NFD) of a text in O(n log n) time.

    Python sorts combining characters by insertion, in O(n^2) for a run of n, unless they are sorted already. Long runs
    are therefore sorted first.
    """
    if _LONG_RUN.search(text):
        apart = "".join(unicodedata.normalize("NFD", character) for character in text)
        text = _LONG_RUN.sub(_sort_combining, apart)
    return unicodedata.normalize("NFD", text)


def _sort_combining(run: re.Match[str]) -> str:
    """Return a run with each sequence of combining characters sorted by combining class."""
    # sorted() is stable, as the canonical ordering requires (Unicode, section 3.11).
    parts = groupby(run[0], key=lambda character: unicodedata.combining(character) > 0)
    return "".join("".join(sorted(part, key=unicodedata.combining) if combining else part) for combining, part in parts)


class TracedWord(NamedTuple):
    """A word, and the range of the original text from which each of its characters comes."""

    text: str
    starts: list[int]
    ends: list[int]


class _Cleaning(dict[int, str | None]):
    """The first translation of characters: control characters to None, spaces to " ", ideographs between two spaces."""

    def __init__(self, *, cjk: bool) -> None:
        self.cjk = cjk

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        category = unicodedata.category(character)
        replacement: str | None = character
        if character in "\t\n\r" or category == "Zs":
            replacement = " "
        elif category in ("Cc", "Cf") or code == 0xFFFD:
            replacement = None
        elif self.cjk and is_cjk(code):
            replacement = f" {character} "
        self[code] = replacement
        return replacement


class _Splitting(dict[int, str | None]):
    """The last translation of characters: accents to None, punctuation marks between two spaces."""

    def __init__(self, *, strip_accents: bool) -> None:
        self.strip_accents = strip_accents

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        replacement: str | None = character
        if self.strip_accents and unicodedata.category(character) == "Mn":
            replacement = None
        elif is_punctuation(code):
            replacement = f" {character} "
        self[code] = replacement
        return replacement


class Normalizer:
    """The first half of tokenization: text to normalised words."""

    def __init__(self, *, lowercase: bool, strip_accents: bool, cjk: bool) -> None:
        """Prepare the tables. `cjk` separates ideographs. google-research/bert strips accents when it lowercases."""
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

    def trace_words(self, text: str) -> list[TracedWord]:
        """Return the same words with the range of `text` from which each character comes; slower.

        The range of a removed accent, and of text removed before it, is added to the character before. Several
        characters may come from one (the jamo of a Hangul syllable). Starts and ends never decrease.
        """
        # The steps of `words`, with an array of origins that each step carries along.
        characters, origins = self._clean_and_trace(text)
        if self.strip_accents:
            characters, origins = _decompose_and_trace(characters, origins)
        words: list[TracedWord] = []
        word = TracedWord("", [], [])
        letters: list[str] = []
        # A final space ends the last word.
        for character, origin in zip([*characters, " "], [*origins, len(text)]):
            became = self._splitting[ord(character)]
            if became is None:
                if word.ends:
                    word.ends[-1] = max(word.ends[-1], origin + 1)
                continue
            for letter in became:
                if not letter.isspace():
                    letters.append(letter)
                    word.starts.append(origin)
                    word.ends.append(origin + 1)
                elif letters:
                    # Sorting combining characters may have swapped origins: make them non-decreasing.
                    bounds = (list(accumulate(column, max)) for column in (word.starts, word.ends))
                    words.append(TracedWord("".join(letters), *bounds))
                    word, letters = TracedWord("", [], []), []
        return words

    def _clean_and_trace(self, text: str) -> tuple[str, list[int]]:
        cleaned = [
            (character, origin) for origin, raw in enumerate(text) for character in self._cleaning[ord(raw)] or ""
        ]
        characters = "".join(character for character, _ in cleaned)
        if not self.lowercase:
            return characters, [origin for _, origin in cleaned]
        # A character's lower case has the same length in every context: only sigma's form depends on its neighbours.
        return characters.lower(), [origin for character, origin in cleaned for _ in character.lower()]


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
