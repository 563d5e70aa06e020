"""SentencePiece models (Kudo and Richardson 2018): reads their protocol buffer without further libraries.

Only fields that matter for tokenization are read. Every length is checked against the rest of the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.guarded import read_bytes
from osbert.interop.tokenizer_checks import PIECES

LARGEST_MODEL = 1 << 26
"""Largest file of a model, 64 MiB. XLM-R's has 5 million bytes."""
UNIGRAM = 1
ALGORITHMS = {UNIGRAM: "unigram", 2: "BPE", 3: "word", 4: "char"}
"""Codes of the algorithms, and their names in `spm_train --model_type`."""
CONTROL, USER_DEFINED = 3, 4
"""Types of special pieces: those without text, and those that are never split."""

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TRAINER_FIELDS = {3: "algorithm", 24: "suffix", 35: "byte_fallback", 40: "unknown"}
_NORMALIZER_FIELDS = {2: "charsmap", 3: "prefix"}
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LONGEST_VARINT = 10


@dataclass
class SentencePieceModel:
    """The content of a model's file. Missing fields have the format's defaults.

    `pieces`: text, log probability and type of each, by id. `algorithm`: a key of `ALGORITHMS`. `unknown`: the id of
    the unknown piece. `byte_fallback`: whether characters without a piece become bytes. `suffix`: whether pieces mark
    the ends of words, not their beginnings. `charsmap`: the precompiled map of characters, empty for none. `prefix`:
    whether a text gets a space before it.
    """

    pieces: list[tuple[str, float, int]] = field(default_factory=list)
    algorithm: int = UNIGRAM
    unknown: int = 0
    byte_fallback: int = 0
    suffix: int = 0
    charsmap: bytes = b""
    prefix: int = 1


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Return the content of a SentencePiece model's file.

    Raises UserError if it is damaged, has no pieces, or is too large.
    """
    content = read_bytes(path, most=LARGEST_MODEL)
    model = SentencePieceModel()
    try:
        for number, value in _fields(content):
            if number == _PIECES:
                model.pieces.append(_piece(_as(bytes, value)))
                if len(model.pieces) > PIECES:
                    raise UserError(f"{path} has more than {PIECES:,} pieces. Is it damaged?", code="too-large")
            elif number in (_TRAINER, _NORMALIZER):
                names = _TRAINER_FIELDS if number == _TRAINER else _NORMALIZER_FIELDS
                for inner, setting in _fields(_as(bytes, value)):
                    if inner in names:
                        name = names[inner]
                        setattr(model, name, _as(type(getattr(model, name)), setting))
        if not model.pieces:
            raise ValueError("it has no pieces")
    except ValueError as error:
        raise UserError(
            f"{path}: not a SentencePiece model, or damaged: {error}. Copy or download it again.", code="damaged-file"
        ) from error
    return model


def _piece(content: bytes) -> tuple[str, float, int]:
    # Protobuf leaves out defaults: an absent score is 0, an absent type 1 (normal).
    text, score, kind = "", 0.0, 1
    for number, value in _fields(content):
        if number == 1:
            text = _as(bytes, value).decode("utf-8")
        elif number == 2:
            (score,) = struct.unpack("<f", _as(bytes, value)) if len(_as(bytes, value)) == 4 else (math.nan,)
        elif number == 3:
            kind = _as(int, value)
    if not text or not math.isfinite(score):
        raise ValueError(f"a piece is {text[:20]!r} with the score {score}")
    return text, score, kind


def _as(wanted: type, value: int | bytes) -> Any:
    if not isinstance(value, wanted):
        raise ValueError(f"a field is {type(value).__name__} where {wanted.__name__} must be")
    return value


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message: an int for a varint, else its bytes.

    Raises ValueError if a field is longer than the rest of the message.
    """
    offset = 0
    while offset < len(content):
        # A key is the number of the field and, in its low three bits, the wire type.
        key, offset = _varint(content, offset)
        kind = key & 7
        if kind == _VARINT:
            value, offset = _varint(content, offset)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, offset = _varint(content, offset)
        elif kind in (_FOUR, _EIGHT):
            size = 4 if kind == _FOUR else 8
        else:
            raise ValueError(f"a field before byte {offset:,} of {len(content):,} is of the kind {kind}")
        if size > len(content) - offset:
            raise ValueError(f"a field at byte {offset:,} has {size:,} bytes, but {len(content) - offset:,} are left")
        yield key >> 3, content[offset : offset + size]
        offset += size


def _varint(content: bytes, start: int) -> tuple[int, int]:
    """Return the varint at offset `start` (7 bits a byte, lowest first) and the offset after it."""
    value = 0
    for shift, byte in enumerate(content[start : start + _LONGEST_VARINT]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, start + shift + 1
    raise ValueError(f"a number at byte {start:,} of {len(content):,} does not end")
