"""Word starts in text without spaces: Chinese, each of whose characters is a piece.

A segmenter is a function from a run of ideographs to its words, which cover the run. Other text has its words from
spaces and punctuation as usual. Ideographs are then pieces of words, so whole-word masking hides Chinese words (SPEC
2).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from osbert.errors import UserError
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.normalize import CJK

Words = Literal["characters", "segmented", "rjieba"]
"""The words of Chinese: single ideographs, runs of ideographs without a space, or the words of rjieba."""

Segmenter = Callable[[str], list[str]]

KEPT = 1 << 12
"""Cached texts between runs of ideographs, mostly punctuation."""

_RUNS = re.compile("([" + "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK) + "]+)")


def segmenter(words: Words) -> Segmenter | None:
    """Return the function that splits a run of ideographs into words; None if each is a word.

    Raises UserError if the library for it is not installed.
    """
    if words == "characters":
        return None
    return _whole if words == "segmented" else _rjieba()


def check_words(words: Words, tokenizer: AnyTokenizer) -> None:
    """Raise UserError if `words` is unknown, or this tokenizer or installation does not support it."""
    if words not in get_args(Words):
        raise UserError(f"words must be one of {', '.join(get_args(Words))}, not '{words}'.", code="invalid-value")
    if segmenter(words) is not None and not tokenizer.cjk:
        raise UserError(
            f"words '{words}' need a tokenizer in which each Chinese character is a piece; this one does not set them "
            "apart (tokenize_chinese_chars is false). Take another tokenizer, or the words 'characters'.",
            code="unusable-tokenizer",
        )


def word_finder(tokenizer: AnyTokenizer, segment: Segmenter) -> Callable[[str], bytes]:
    """Return a function from a text to one byte per piece: 1 if a word starts there, else 0.

    Each ideograph must be one piece of the tokenizer; `segment` splits each run of them into words.
    """

    @lru_cache(maxsize=KEPT)
    def outside(part: str) -> bytes:
        ids = np.frombuffer(tokenizer.encode_bytes(part), tokenizer.id_type)
        return (~tokenizer.continuation[ids]).tobytes()

    def find(text: str) -> bytes:
        flags = []
        for index, part in enumerate(_RUNS.split(text)):  # runs of ideographs are at the odd places
            if index % 2:
                flags += [b"\1" + bytes(len(word) - 1) for word in segment(part)]
            else:
                flags.append(outside(part))
        return b"".join(flags)

    return find


def _whole(run: str) -> list[str]:
    return [run]


def _rjieba() -> Segmenter:
    try:
        import rjieba
    except ImportError:
        raise UserError(
            "words 'rjieba' need the library rjieba, which cuts Chinese text into words: "
            "pip install 'osbert[chinese]'. Or segment the text before, a space between words, and take the words "
            "'segmented'.",
            code="missing-library",
        ) from None
    cut: Segmenter = rjieba.cut
    return cut
