"""The terms of a text for an index or a table of frequent words: lower case, without punctuation."""

from __future__ import annotations

import re
import unicodedata

from osbert.text.normalize import CJK

_KANA = "\u3041-\u30ff"
_UNSPACED = "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK) + _KANA
_MARKS = "\u0300-\u036f\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff"
"""Combining marks in words, which are not letters themselves."""
_TERM = re.compile(f"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\\W_]|[{_MARKS}])+")
_RUN = re.compile(f"[{_UNSPACED}]")


def terms(text: str) -> list[str]:
    """Return the terms of a text in order; Chinese and Japanese yield bigrams of characters.

    >>> terms("The Café's 2 films"), terms("我喜欢")
    (['the', 'café', 's', '2', 'films'], ['我喜', '喜欢'])
    """
    term_list: list[str] = []
    for word in _TERM.findall(unicodedata.normalize("NFC", text).lower()):
        if len(word) > 2 and _RUN.match(word):
            term_list += [word[start : start + 2] for start in range(len(word) - 1)]
        else:
            term_list.append(word)
    return term_list
