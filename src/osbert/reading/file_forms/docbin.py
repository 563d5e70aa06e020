"""spaCy's .spacy files: a DocBin, which is MessagePack in zlib, read without spaCy.

A word is stored as the 64-bit MurmurHash2 of its text, or as the id of one of spaCy's built-in symbols; the file also
has the texts. Entities and classes are read; a class counts if its value is at least 0.5.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.reading.file_forms.contract import Beginning, Entry, FileForm, most_unpacked, too_large, whole
from osbert.reading.form import TableReading
from osbert.reading.msgpack import unpack
from osbert.reading.record_forms.spacy import classes
from osbert.reading.spacy_symbols import SYMBOLS

_ORTH, _ENT_IOB, _ENT_TYPE, _SPACY = 65, 77, 78, 81
_INSIDE, _BEGIN = 1, 3
_MASK = (1 << 64) - 1
_FACTOR = 0xC6A4A7935BD1E995


class DocBin(FileForm):
    """A .spacy file."""

    title: ClassVar[str] = "spaCy DocBin"

    @classmethod
    def claims(cls, beginning: Beginning) -> bool:
        """Return whether a file is called .spacy; a damaged one is then reported as such."""
        return beginning.path.suffix.lower() == ".spacy"

    def load(self, path: Path, reading: TableReading) -> list[Entry]:
        """Return the documents. Raises UserError if the file is damaged or holds no words."""
        most = most_unpacked(path)
        try:
            content = zlib.decompressobj().decompress(whole(path), most + 1)
            if len(content) > most:
                raise too_large(path, most)
            return list(_documents(_fields(unpack(content, size=path.stat().st_size))))
        except (zlib.error, ValueError) as error:
            raise UserError(
                f"{path}: not a DocBin that can be read ({error}). Write it again with DocBin.to_disk.",
                code="damaged-file",
            ) from error


def _fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of a DocBin. Raises ValueError if one is missing or has another type."""
    kinds = {"attrs": list, "tokens": bytes, "spaces": bytes, "lengths": bytes, "strings": list}
    if not isinstance(value, dict):
        raise ValueError("it is no map")
    for name, kind in kinds.items():
        if not isinstance(value.get(name), kind):
            raise ValueError(f"its field '{name}' is missing or of another kind")
    if not all(isinstance(attribute, int) for attribute in value["attrs"]) or not all(
        isinstance(string, str) for string in value["strings"]
    ):
        raise ValueError("its attributes are no numbers, or its strings no texts")
    if _ORTH not in value["attrs"]:
        raise ValueError("it holds no words (the attribute ORTH)")
    return value


def _documents(fields: Mapping[str, Any]) -> Iterator[Entry]:
    attrs = fields["attrs"]
    lengths = np.frombuffer(fields["lengths"], "<i4")
    tokens = np.frombuffer(fields["tokens"], "<u8").reshape(-1, len(attrs))
    spaces = np.frombuffer(fields["spaces"], np.uint8)
    if (lengths < 0).any() or int(lengths.sum(dtype=np.int64)) != len(tokens) or len(spaces) != len(tokens):
        raise ValueError("the lengths of its documents are not those of its words")
    names = {text_hash(text): text for text in fields["strings"]} | SYMBOLS | {0: ""}
    cats = fields.get("cats")
    for number, (start, end) in enumerate(pairwise(accumulate(lengths.tolist(), initial=0)), 1):
        try:
            row = _document(tokens[start:end], spaces[start:end], attrs, names)
            row |= classes(cats[number - 1]) if isinstance(cats, list) and number <= len(cats) else {}
        except (KeyError, ValueError) as error:
            message = f"no string has the hash {error}" if isinstance(error, KeyError) else str(error)
            yield number, ValueError(message)
        else:
            yield number, row


def _document(
    tokens: NDArray[np.uint64], spaces: NDArray[np.uint8], attrs: Sequence[int], names: Mapping[int, str]
) -> dict[str, Any]:
    words = [names[word_hash] for word_hash in tokens[:, attrs.index(_ORTH)].tolist()]
    parts = [word + " " * bool(space) for word, space in zip(words, spaces.tolist())]
    row: dict[str, Any] = {"text": "".join(parts)}
    if _ENT_IOB not in attrs or _ENT_TYPE not in attrs:
        return row
    tags = tokens[:, attrs.index(_ENT_IOB)].tolist()
    types = [names[type_hash] for type_hash in tokens[:, attrs.index(_ENT_TYPE)].tolist()]
    starts = [*accumulate(map(len, parts), initial=0)]
    spans: list[list[Any]] = []
    before = ""
    for word, tag, type_, start in zip(words, tags, types, starts):
        # ENT_IOB: 1 inside, 2 outside, 3 begin, 0 unset.
        inside = tag in (_INSIDE, _BEGIN) and bool(type_)
        # An I after another type begins an entity of its own.
        if inside and (tag == _BEGIN or type_ != before):
            spans.append([start, start + len(word), type_])
        elif inside:
            spans[-1][1] = start + len(word)
        before = type_ if inside else ""
    return row | {"entities": spans if any(tags) else None}


def text_hash(text: str) -> int:
    """Return the 64-bit MurmurHash2 (variant A, seed 1) of a text in UTF-8, spaCy's id of it; 0 if empty.

    >>> text_hash("coffee")
    3197928453018144401
    """
    content = text.encode("utf-8", "surrogatepass")
    if not content:
        return 0
    value = 1 ^ (len(content) * _FACTOR & _MASK)
    whole_blocks = len(content) // 8 * 8
    for offset in range(0, whole_blocks, 8):
        block = int.from_bytes(content[offset : offset + 8], "little") * _FACTOR & _MASK
        block = (block ^ (block >> 47)) * _FACTOR & _MASK
        value = (value ^ block) * _FACTOR & _MASK
    if rest := content[whole_blocks:]:
        value = (value ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    value = (value ^ (value >> 47)) * _FACTOR & _MASK
    return value ^ (value >> 47)
