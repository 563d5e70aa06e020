"""Small SentencePiece models, written field by field as the format's protocol buffers are, without its libraries."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Value = int | float | bytes | str

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
ALGORITHM, BYTE_FALLBACK, UNKNOWN_ID = 3, 35, 40
"""Fields of the trainer's settings."""
CHARSMAP, PREFIX = 2, 3
"""Fields of the normalizer's."""

CUT = [
    *[("▁the", -2.0), ("▁quick", -4.0), ("▁fox", -4.5), ("qu", -5.0), ("ick", -5.0), ("▁", -3.0)],
    *[(letter, -6.0 - place / 10) for place, letter in enumerate("abcdefghiklnoqrtuwxé,1日本語🦊")],
    *[("1,", -4.0), ("日本", -5.0)],
]
"""Pieces with their scores; the log probabilities of no text in particular."""


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def message(fields: Sequence[tuple[int, Value]]) -> bytes:
    """Fields as number and value, each of the kind that its value has."""
    found = bytearray()
    for number, value in fields:
        if isinstance(value, float):
            found += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            found += varint(number << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            found += varint(number << 3 | 2) + varint(len(content)) + content
    return bytes(found)


def model(
    pieces: Sequence[tuple[str, float, int]],
    trainer: Mapping[int, Value] | None = None,
    normalizer: Mapping[int, Value] | None = None,
) -> bytes:
    """A model's file. It has a field, too, that no reader knows, as those of later versions have."""
    parts = [message([(1, text), (2, score), (3, kind)]) for text, score, kind in pieces]
    settings = message([*(trainer or {}).items()]), message([(1, "nmt_nfkc"), *(normalizer or {}).items()])
    return message([*((1, part) for part in parts), (2, settings[0]), (3, settings[1]), (201, "later")])


def cut_with(*first: tuple[str, int]) -> list[tuple[str, float, int]]:
    """CUT behind special pieces, given with their types."""
    return [*((text, 0.0, kind) for text, kind in first), *((text, score, NORMAL) for text, score in CUT)]


FAIRSEQ = cut_with(("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))
"""As XLM-R's and CamemBERT's models."""
DEBERTA = cut_with(("[PAD]", CONTROL), ("[CLS]", CONTROL), ("[SEP]", CONTROL), ("[UNK]", UNKNOWN))
ALBERT = cut_with(
    *(("<pad>", CONTROL), ("<unk>", UNKNOWN)), *((f"[{name}]", CONTROL) for name in ("CLS", "SEP", "MASK"))
)


def charsmap(rules: Mapping[str, str]) -> bytes:
    """The map of characters: a trie over bytes as a double array (Aoe 1989), 256 places a node, and the new texts."""
    keys = {old.encode(): new.encode() for old, new in rules.items()}
    nodes = sorted({key[:end] for key in keys for end in range(len(key) + 1)})
    base = {node: 256 * place for place, node in enumerate(nodes, 1)}
    units, texts = [base[b""] << 10, *[0] * (256 * (len(nodes) + 1) - 1)], b""
    for node in nodes[1:]:
        place = base[node[:-1]] ^ node[-1]
        units[place] = (place ^ base[node]) << 10 | (node in keys) << 8 | node[-1]
    for key, new in keys.items():
        units[base[key]] = 1 << 31 | len(texts)
        texts += new + b"\0"
    return struct.pack(f"<{len(units) + 1}I", 4 * len(units), *units) + texts
