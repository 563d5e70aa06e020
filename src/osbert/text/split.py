"""The ranges of a text's words: those of BERT's basic tokenizer, or single characters."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from osbert.text.normalize import Normalizer

Split = Literal["words", "characters"]
"""words: at spaces, and around each punctuation mark and each ideograph. characters: each is a word of its own."""

Range = tuple[int, int]
"""Start and end of a range of characters, the end excluded."""

_CHUNK = re.compile(r"[^ \t\n\r]+")


def ranges(text: str, split: Split) -> list[Range]:
    """Return the ranges of a text's words, in order; they do not overlap, and none is blank."""
    if split == "characters":
        return [(index, index + 1) for index, character in enumerate(text) if not character.isspace()]
    word_ranges: list[Range] = []
    for chunk in _CHUNK.finditer(text):
        start, part = chunk.start(), chunk[0]
        if part.isascii() and part.isalnum():
            word_ranges.append((start, start + len(part)))
            continue
        words = _basic().trace_words(part)
        word_ranges += [(start + word.starts[0], start + word.ends[-1]) for word in words]
    return word_ranges


@cache
def _basic() -> Normalizer:
    """Return a normalizer; only its ranges are used, so its spelling does not matter."""
    return Normalizer(lowercase=False, strip_accents=False, cjk=True)
