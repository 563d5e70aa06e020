"""The words of a text: their ranges, their starts in text without spaces, and the terms of an index.

A segmenter is a function from a run of ideographs to its words, which cover the run. Other text has its words from
spaces and punctuation as usual. Ideographs are then pieces of words, so whole-word masking hides Chinese words (SPEC
2).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Literal, get_args

import numpy as np

from osbert.errors import UserError
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.normalize import CJK, Normalizer

Split = Literal["words", "hyphenated", "characters"]
"""words: at spaces, and around each punctuation mark and each ideograph. hyphenated: runs of letters and digits, also
with hyphens and underscores between them (GLiNER's). characters: each is a word of its own."""

Range = tuple[int, int]
"""Start and end of a range of characters, the end excluded."""

_CHUNK = re.compile(r"[^ \t\n\r]+")
_HYPHENATED = re.compile(r"\w+(?:[-_]\w+)*|\S")
Words = Literal["characters", "segmented", "rjieba"]
"""The words of Chinese: single ideographs, runs of ideographs without a space, or the words of rjieba."""

Segmenter = Callable[[str], list[str]]

KEPT = 1 << 12
"""Cached texts between runs of ideographs, mostly punctuation."""

_IDEOGRAPHS = re.compile("([" + "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK) + "]+)")
_KANA = "\u3041-\u30ff"
_THAI_LAO = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf"
_BURMESE = "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f"
_KHMER = "\u1780-\u17d3\u17d7\u17dc\u17dd"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
_UNSPACED = (
    "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK) + _KANA + _THAI_LAO + _BURMESE + _KHMER + _HANGUL
)
"""Letters and their marks, without digits and punctuation, of scripts without spaces between words, and of Korean,
whose particles follow words without a space."""
_MARKS = "\u0300-\u036f\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
"""Combining marks in words, which are not letters themselves."""
_EMOJI = (
    "\u231a\u231b\u23e9-\u23f3\u2600-\u26ff\u2705-\u270d\u2728\u274c\u274e\u2753-\u2755\u2757\u2763\u2764\u2b50\u2b55"
    + ("\U0001f300-\U0001f3fa\U0001f400-\U0001faff")
)
"""Symbols that are terms. Tones of skin, joiners and variation selectors after them are none."""
_ACCENTED = re.compile("([ a-z\u00df-\u024f\u0250-\u02af\u1e00-\u1eff])[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff]+")
"""A Latin letter with its combining marks, or a space: a spacing accent is one with a mark, such as \u00b4."""
_TRADE_MARKS = {0x2120: " ", 0x2122: " "}
"""Signs that NFKC would write as letters of the word before them."""


def ranges(text: str, split: Split) -> list[Range]:
    """Return the ranges of a text's words, in order; they do not overlap, and none is blank."""
    if split == "characters":
        return [(index, index + 1) for index, character in enumerate(text) if not character.isspace()]
    if split == "hyphenated":
        return [match.span() for match in _HYPHENATED.finditer(text)]
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


def segmenter(words: Words) -> Segmenter | None:
    """Return the function that splits a run of ideographs into words; None if each is a word.

    Raises UserError if the library for it is not installed.
    """
    if words == "characters":
        return None
    return (lambda run: [run]) if words == "segmented" else _rjieba()


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
        for index, part in enumerate(_IDEOGRAPHS.split(text)):  # runs of ideographs are at the odd places
            if index % 2:
                flags += [b"\1" + bytes(len(word) - 1) for word in segment(part)]
            else:
                flags.append(outside(part))
        return b"".join(flags)

    return find


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


@cache
def _term_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a term, and of the start of one without spaces; compiling them takes 10 ms."""
    flag = "[\U0001f1e6-\U0001f1ff]{2}"
    term = re.compile(f"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\\W_]|[{_MARKS}])+|{flag}|[{_EMOJI}]")
    return term, re.compile(f"[{_UNSPACED}]")


def fold_text(text: str) -> str:
    """Return a text as a search compares it: without case, Latin accents and forms of width.

    Marks of other scripts stay: they make other letters.

    >>> fold_text("Café Straße １２３ ｶﾞ Đà Nẵng"), fold_text("й कि ガ ά")
    ('cafe strasse 123 ガ đa nang', 'й कि ガ ά')
    """
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.translate(_TRADE_MARKS)).casefold()
    return unicodedata.normalize("NFKC", _ACCENTED.sub(r"\1", apart))


def terms(text: str) -> list[str]:
    """Return the terms of a text in order; scripts without spaces between words yield bigrams of characters.

    Those are Chinese characters, kana, Thai, Lao, Burmese, Khmer and Hangul.

    >>> terms("The Café's 2 films"), terms("我喜欢"), terms("แมว 5"), terms("고양이가")
    (['the', 'café', 's', '2', 'films'], ['我喜', '喜欢'], ['แม', 'มว', '5'], ['고양', '양이', '이가'])
    """
    term_list: list[str] = []
    term, unspaced = _term_patterns()
    for word in term.findall(unicodedata.normalize("NFC", text).lower()):
        if len(word) > 2 and unspaced.match(word):
            term_list += [word[start : start + 2] for start in range(len(word) - 1)]
        else:
            term_list.append(word)
    return term_list


def characters_within(text: str) -> list[str]:
    """Return the characters of text without spaces that are no terms by themselves, which a query may be.

    >>> characters_within("一 My 黑猫")
    ['黑', '猫']
    """
    term, unspaced = _term_patterns()
    words = term.findall(unicodedata.normalize("NFC", text).lower()) if unspaced.search(text) else ()
    return [character for word in words if len(word) > 1 and unspaced.match(word) for character in word]
