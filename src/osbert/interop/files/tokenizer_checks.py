"""Checks of a tokenizer.json for values on which the tokenizers library would abort, hang or run out of memory.

The library panics on many wrong values, which `guarded.native` catches. Other values end the process or never return: a
prefix that cuts a piece inside a character, pieces of a million characters, words without a limit, replacements that
double a text many times. This module refuses them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from osbert.errors import UserError

PIECES = 1 << 20
"""Most pieces of a vocabulary, here and in a vocab.txt. XLM-V has 901,629, the most of any known encoder."""
PIECE = 1000
"""Most characters of a piece."""
AFFIX = 100
"""Most characters of a prefix of pieces inside words, or a suffix of those that end one."""
NODES = 1_000_000
"""Nodes of a Unigram model's trie (one of 340 bytes per distinct prefix) that are always allowed."""
NODE_BYTES = 16
"""Bytes of the file required for each further node."""
STEPS = 2000
"""Most values in parts that work together."""
GROWTH = 5000
"""Most times that normalizers and pre-tokenizers may lengthen a text, a decoder a piece. ALBERT's may 2,400 times."""
COMPATIBILITY = 18
"""Most characters that NFKC, NFKD or a precompiled map makes from one character."""
GROWN = {
    "NFKC": COMPATIBILITY,
    "NFKD": COMPATIBILITY,
    "NFC": 3,
    "NFD": 4,
    "Lowercase": 2,
    "BertNormalizer": 3,  # spaces on both sides of an ideograph
    "Metaspace": 2,  # a mark before each piece, which may be one character
    "ByteLevel": 5,  # a character per byte, and a space before each piece
}
"""Most characters that a step makes from one character; 1 where it is missing here."""
CONSUMES = re.compile(
    r"(?:(?:\\[dDsSwWnrt]|[^\\\[\](){}*+?|.^$]|\[\^?[^\[\]\\&^]+\])(?:\+|\{[1-9][0-9]*,?\})?)+", re.ASCII
)
"""Patterns that match no empty text for certain: plain characters and simple sets, each once or more.

Oniguruma, which searches for them, has more forms than Python's `re`, and reads some forms otherwise: `a{1}?` matches
an empty text there, as `(?=.)` and `a\\K` do.
"""
PARTS = (("normalizer", "pre_tokenizer"), ("post_processor",), ("decoder",))
"""The parts other than the model, together where one works on the output of the other."""

Content = Mapping[str, Any]


def check_tokenizer(content: Content, size: int) -> None:
    """Raise UserError that names the first bad value of a tokenizer.json. `size`: characters of the file."""
    model = content.get("model")
    if not isinstance(model, dict):
        raise UserError("it has no model.", code="unusable-tokenizer")
    pieces = list(_pieces(model))
    added = [(token["content"], token["id"]) for token in content.get("added_tokens") or ()]
    for piece, number in [*pieces, *added]:
        if not isinstance(piece, str) or len(piece) > PIECE:
            raise UserError(
                f"a piece is {str(piece)[:20]!r}..., but a piece must be a text of at most {PIECE:,} characters.",
                code="unusable-tokenizer",
            )
        if type(number) is not int or not 0 <= number < PIECES:
            raise UserError(
                f"the piece {piece!r} has the id {number!r}, but an id must be a number below {PIECES:,}.",
                code="unusable-tokenizer",
            )
    _check_words(model)
    _check_prefix(model)
    if model.get("type") == "Unigram" or isinstance(model.get("vocab"), list):
        _check_tree([piece for piece, _ in pieces], size)
    for parts in PARTS:
        _check_parts([content.get(part) for part in parts])


def _pieces(model: Content) -> Iterator[tuple[Any, Any]]:
    """Yield the pieces of a model with their ids. BPE maps piece to id; Unigram lists [piece, score] by id."""
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        yield from vocabulary.items()
    elif isinstance(vocabulary, list):
        yield from ((entry[0], number) for number, entry in enumerate(vocabulary))
    else:
        raise UserError("its model has no vocabulary.", code="unusable-tokenizer")


def _check_words(model: Content) -> None:
    """Raise UserError if WordPiece would search a word of any length: its time grows with the cube of the length."""
    longest = model.get("max_input_chars_per_word", 0)
    if type(longest) is not int or not 0 <= longest <= PIECE:
        raise UserError(
            f"max_input_chars_per_word is {longest!r}, but must be a number up to {PIECE:,}; BERT has 100.",
            code="too-large",
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(str(model.get(name) or "")) > AFFIX:
            raise UserError(f"{name} has more than {AFFIX} characters; BERT's prefix is '##'.", code="too-large")


def _check_prefix(model: Content) -> None:
    """Raise UserError if the second part of a merge lacks the prefix: the library removes it without a check."""
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in (model.get("merges") or ()) if prefix else ():
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not str(parts[-1]).startswith(prefix):
            raise UserError(
                f"the merge {merge!r} has a second part that does not begin with the prefix {prefix!r}.",
                code="unusable-tokenizer",
            )


def _check_tree(pieces: Iterable[str], size: int) -> None:
    ordered = sorted(pieces)
    most = NODES + size // NODE_BYTES
    if sum(map(len, ordered)) <= most:
        return
    shared = 0  # the prefixes of a piece that the one before it has, too
    for before, piece in pairwise(ordered):
        shared += next((n for n, (a, b) in enumerate(zip(before, piece)) if a != b), min(len(before), len(piece)))
    if sum(map(len, ordered)) - shared > most:
        raise UserError(
            f"its pieces have more than {most:,} different prefixes, more than a language has.", code="too-large"
        )


def _check_parts(parts: list[Any]) -> None:
    growth, waiting, seen = 1, list(parts), 0
    while waiting:
        part = waiting.pop()
        seen += 1
        if isinstance(part, str) and len(part) > PIECE:
            raise UserError(
                f"a setting is a text of {len(part):,} characters; at most {PIECE:,} are allowed.", code="too-large"
            )
        if isinstance(part, dict):
            growth *= _growth(part)
            waiting += [value for name, value in part.items() if name != "precompiled_charsmap"]
        elif isinstance(part, list):
            waiting += part
        if seen + len(waiting) > STEPS:
            raise UserError(
                f"its normalizer, pre-tokenizer, post-processor and decoder have more than {STEPS:,} values.",
                code="too-large",
            )
        if growth > GROWTH:
            raise UserError(
                f"its normalizers, pre-tokenizers or decoders can make a text more than {GROWTH:,} times as long.",
                code="too-large",
            )


def _growth(step: Content) -> int:
    """Return the factor by which a step of the tokenizer can lengthen a text."""
    kind = step.get("type")
    if kind == "Replace":
        content = len(str(step.get("content", "")))
        # An empty match puts the content before each character, and one at the end; the characters stay.
        return max(1, content) if _consumes(step.get("pattern")) else 1 + 2 * content
    if kind == "Prepend":
        return 1 + len(str(step.get("prepend", "")))
    if kind == "Precompiled":
        return max(COMPATIBILITY, _longest(step.get("precompiled_charsmap")))
    return GROWN.get(str(kind), 1)


def _consumes(pattern: Any) -> bool:
    """Return whether each match of a pattern has a character for certain.

    >>> [_consumes({"Regex": pattern}) for pattern in (" {2,}", "\\\\s+", "", "(?=.)", "a{1}?", "x*", "a\\\\K")]
    [True, True, False, False, False, False, False]
    >>> _consumes({"String": "a"}), _consumes({"String": ""})
    (True, False)
    """
    form, text = next(iter(pattern.items())) if isinstance(pattern, dict) and len(pattern) == 1 else ("", "")
    return isinstance(text, str) and (
        bool(CONSUMES.fullmatch(text)) if form == "Regex" else form == "String" and text != ""
    )


def _longest(encoded: Any) -> int:
    """Return the most bytes to which a precompiled map can expand one character.

    The map consists of the trie's size in 4 bytes, the trie, and zero-terminated texts.
    """
    try:
        content = base64.b64decode(encoded or "", validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise UserError(f"its precompiled_charsmap is not base64 ({error}).", code="unusable-tokenizer") from error
    end = 4 + int.from_bytes(content[:4], "little")
    if len(content) < 8 or end % 4 or end > len(content):
        raise UserError("its precompiled_charsmap is truncated or empty.", code="unusable-tokenizer")
    return max(map(len, content[end:].split(b"\0")))
