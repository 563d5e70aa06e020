"""Where words start in text without spaces between them: Chinese, whose characters each stand alone as a piece.

A segmenter is a function from a run of ideographs to its words, which together are that run. Only such runs are
affected: what stands between them has its words from spaces and punctuation, as ever. Characters then play the part of
pieces, so whole-word masking hides Chinese words (SPEC 2).
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
"""Whose words: each ideograph is one, those without a space between them are one, or rjieba's."""

Segmenter = Callable[[str], list[str]]

KEPT = 1 << 12
"""Stretches between ideographs, punctuation mostly, whose pieces are remembered."""

_RUNS = re.compile("([" + "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK) + "]+)")


def segmenter(words: Words) -> Segmenter | None:
    """Return the function that cuts a run of ideographs into words; None when each is a word of its own.

    Raises UserError when a library is needed that is not installed.
    """
    if words == "characters":
        return None
    return _whole if words == "segmented" else _rjieba()


def check_words(words: Words, tokenizer: AnyTokenizer) -> None:
    """Raise UserError, before any work, if this tokenizer or installation cannot divide text into such words."""
    if words not in get_args(Words):
        raise UserError(f"words must be one of {', '.join(get_args(Words))}, not '{words}'.", code="invalid-value")
    if segmenter(words) is not None and not tokenizer.cjk:
        raise UserError(
            f"words '{words}' need a tokenizer in which each Chinese character is a piece; this one does not set them "
            "apart (tokenize_chinese_chars is false). Take another tokenizer, or the words 'characters'.",
            code="unusable-tokenizer",
        )


def word_finder(tokenizer: AnyTokenizer, segment: Segmenter) -> Callable[[str], bytes]:
    """Return a function from a text to one byte for each of its pieces: 1 where a word starts, else 0.

    The tokenizer makes one piece of each ideograph; `segment` cuts each run of them into words.
    """

    @lru_cache(maxsize=KEPT)
    def outside(part: str) -> bytes:
        ids = np.frombuffer(tokenizer.encode_bytes(part), tokenizer.id_type)
        return (~tokenizer.continuation[ids]).tobytes()

    def find(text: str) -> bytes:
        flags = []
        for place, part in enumerate(_RUNS.split(text)):  # runs of ideographs are at the odd places
            if place % 2:
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
