"""Makes tokenizer.json from a SentencePiece model of DeBERTa, XLM-R, CamemBERT or ALBERT.

Ids are those of the model, but XLM-R and CamemBERT insert the special pieces of fairseq before them. The normalisation
before the model's own character map is as in transformers' converters.

A SentencePiece model (Kudo and Richardson 2018) is a protocol buffer, which is read without further libraries: only the
fields that matter for tokenization. Every length is checked against the rest of the file.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.guarded import read_bytes, read_if_there
from osbert.interop.files.tokenizer_checks import PIECES
from osbert.text.file_tokenizer import NAMES, added_piece, piece_text, text_template
from osbert.text.tokenizer import SPECIALS

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
        raise ValueError(f"a field is {type(value).__name__} but must be {wanted.__name__}")
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


_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_BERTS = dict(zip(_ROLES, SPECIALS))
_FAIRSEQS = dict(zip(_ROLES, ("<pad>", "<unk>", "<s>", "</s>", "<mask>")))
_RARE = 100.0
"""Subtracted by ALBERT from the score of a piece that ends with a digit and a comma, which thus hardly ever occurs."""
_DEBERTA, _ALBERT = "deberta-v2", "albert"


@dataclass(frozen=True)
class UnigramFamily:
    """How a family uses a SentencePiece model.

    `names`: its special pieces by transformers' names. `first`: pieces and scores that replace the model's first
    `replaced` pieces. `segments`: whether the second text of a pair is segment 1; else two pieces separate the texts.
    `mask_takes_space`: whether the mask takes the space before it.
    """

    names: Mapping[str, str]
    first: tuple[tuple[str, float], ...] = ()
    replaced: int = 0
    segments: bool = False
    mask_takes_space: bool = True


FAMILIES = {
    _DEBERTA: UnigramFamily(_BERTS, segments=True, mask_takes_space=False),
    _ALBERT: UnigramFamily(_BERTS | {"pad_token": "<pad>", "unk_token": "<unk>"}, segments=True),
    "xlm-roberta": UnigramFamily(
        _FAIRSEQS, first=(("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)), replaced=3
    ),
    "camembert": UnigramFamily(
        _FAIRSEQS,
        first=(("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)),
        replaced=1,
    ),
}
"""By the type in a config.json; a tokenizer_config.json's `tokenizer_class` says the same in other words."""


def tokenizer_of(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the tokenizer.json of a model's file, and the special pieces by our names.

    `config`: what the folder says of its tokenizer. Raises UserError if the family or the algorithm is not supported,
    and as `read_sentencepiece`.
    """
    kind = _kind(path, config)
    family, model = FAMILIES[kind], read_sentencepiece(path)
    _check(path, model)
    names = {**family.names, **{role: piece_text(config[role]) for role in _ROLES if config.get(role)}}
    vocabulary = [*family.first, *((text, score) for text, score, _ in model.pieces[family.replaced :])]
    if kind == _ALBERT:
        vocabulary = [
            (text, score - _RARE * (text[-1:] == "," and text[-2:-1].isdigit())) for text, score in vocabulary
        ]
    # Reversed, so that the first of two equal pieces keeps its id.
    ids = {text: number for number, (text, _) in reversed([*enumerate(vocabulary)])}
    added = _list_added(path, model, config, ids)
    for role, piece in names.items():
        added.setdefault(piece, added_piece(piece, ids.setdefault(piece, len(ids))))
        added[piece]["lstrip"] |= role == "mask_token" and family.mask_takes_space
    splitters = [_metaspace(model, config)]
    if config.get("split_by_punct") and kind == _DEBERTA:
        splitters.insert(0, {"type": "Punctuation", "behavior": "Isolated"})
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added.values(), key=lambda token: int(token["id"])),
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(kind, model, config)},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitters},
        "post_processor": text_template(names["cls_token"], names["sep_token"], ids, segments=family.segments),
        "decoder": _metaspace(model, config),
        "model": {
            "type": "Unigram",
            "unk_id": ids[family.names["unk_token"]] if family.first else model.unknown,
            "vocab": [[text, score] for text, score in vocabulary],
            "byte_fallback": False,
        },
    }
    return content, {special: names[role] for special, role in zip(NAMES, _ROLES)}


def conversion_advice(path: Path) -> str:
    """Return how to get the tokenizer.json of a folder."""
    return (
        "Copy it from the folder's source, or let transformers make it: "
        f"AutoTokenizer.from_pretrained({str(path)!r}).save_pretrained({str(path)!r})."
    )


def _kind(path: Path, config: Mapping[str, Any]) -> str:
    """Return the family of a folder's tokenizer, a key of `FAMILIES`."""
    named = str(config.get("tokenizer_class") or read_if_there(path.parent / "config.json").get("model_type") or "")
    plain = re.sub(r"Tokenizer(Fast)?$", "", named).lower().replace("-", "")
    for kind in FAMILIES:
        if kind.replace("-", "") == plain:
            return kind
    raise UserError(
        f"{path.parent} has only a sentencepiece model ({path.name}) as its tokenizer, and its type is "
        f"{named or 'not in its config'}; such models are read for {', '.join(FAMILIES)}. For others tokenizer.json is "
        f"needed. {conversion_advice(path.parent)}",
        code="unusable-tokenizer",
    )


def _check(path: Path, model: SentencePieceModel) -> None:
    """Raise UserError if a model tokenizes in a way that none of the families uses."""
    if model.algorithm != UNIGRAM:
        name = ALGORITHMS.get(model.algorithm, model.algorithm)
        raise UserError(
            f"{path}: the algorithm of the sentencepiece model is {name}; only unigram is read.",
            code="unusable-tokenizer",
        )
    for name, value in (("byte_fallback", model.byte_fallback), ("treat_whitespace_as_suffix", model.suffix)):
        if value:
            raise UserError(
                f"{path}: the sentencepiece model has {name}, which is not supported.", code="unusable-tokenizer"
            )


def _list_added(
    path: Path, model: SentencePieceModel, config: Mapping[str, Any], ids: dict[str, int]
) -> dict[str, dict[str, Any]]:
    """Return the pieces that are matched before a text is split, by text. New ones are appended to `ids`."""
    added_pieces = {
        text: added_piece(text, ids[text], special=kind == CONTROL)
        for text, _, kind in model.pieces
        if kind in (CONTROL, USER_DEFINED) and text in ids
    }
    given = {piece_text(token): int(number) for number, token in (config.get("added_tokens_decoder") or {}).items()}
    given = given or read_if_there(path.parent / "added_tokens.json")
    special = {piece_text(config[role]) for role in _ROLES if config.get(role)}
    # Added pieces must follow the model's without gaps, in the order of their ids.
    for text, number in sorted(given.items(), key=lambda pair: int(pair[1])):
        if ids.setdefault(text, len(ids)) != number:
            raise UserError(
                f"{path.parent}: the added piece {text!r} has the id {number}, but the next id is {ids[text]}. Are the "
                "files from one folder?",
                code="unusable-tokenizer",
            )
        added_pieces.setdefault(text, added_piece(text, number, special=text in special))
    return added_pieces


def _normalizers(kind: str, model: SentencePieceModel, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the normalisation steps of a text: the family's, then the model's.

    Spaces are stripped last, as in SentencePiece, since other characters may become spaces. SentencePiece can keep
    extra spaces; transformers ignores this setting for these families, and so does this module.
    """
    steps: list[dict[str, Any]] = []
    if kind == _ALBERT:
        steps += [{"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in ("``", "''")]
        steps += [{"type": name} for name in ("NFKD", "StripAccents") if not config.get("keep_accents")]
    if kind in (_ALBERT, _DEBERTA) and config.get("do_lower_case", kind == _ALBERT):
        steps.append({"type": "Lowercase"})
    if model.charsmap:
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.charsmap).decode()})
    steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
    steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    return steps


def _metaspace(model: SentencePieceModel, config: Mapping[str, Any]) -> dict[str, Any]:
    first = config.get("add_prefix_space", bool(model.prefix))
    scheme = "always" if first else "never"
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
