"""Where the words of a text lie in it: those of BERT's basic tokenizer, or its characters."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from osbert.text.normalize import Normalizer

Split = Literal["words", "characters"]
"""words: at spaces, and around each punctuation mark and each ideograph. characters: each is a word of its own."""

Range = tuple[int, int]
"""The characters of a text from the first to before the second."""

_CHUNK = re.compile(r"[^ \t\n\r]+")


def ranges(text: str, split: Split) -> list[Range]:
    """Return where the words of a text lie, in their order; they do not overlap, and none is of spaces alone."""
    if split == "characters":
        return [(place, place + 1) for place, character in enumerate(text) if not character.isspace()]
    found: list[Range] = []
    for chunk in _CHUNK.finditer(text):
        start, part = chunk.start(), chunk[0]
        if part.isascii() and part.isalnum():
            found.append((start, start + len(part)))
            continue
        words = _basic().traced(part)
        found += [(start + word.starts[0], start + word.ends[-1]) for word in words]
    return found


@cache
def _basic() -> Normalizer:
    """Return the splitter; how it spells words does not matter here."""
    return Normalizer(lowercase=False, strip_accents=False, cjk=True)
