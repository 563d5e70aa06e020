"""Reads untrusted MessagePack: one value of maps, lists, texts, bytes and numbers, within limits."""

from __future__ import annotations

import struct
from typing import Any

from osbert.guarded import DEEPEST, FREE, TIMES, VALUE

_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_LENGTHS = {
    0xC4: ("bin", ">B"),
    0xC5: ("bin", ">H"),
    0xC6: ("bin", ">I"),
    0xD9: ("str", ">B"),
    0xDA: ("str", ">H"),
    0xDB: ("str", ">I"),
    0xDC: ("list", ">H"),
    0xDD: ("list", ">I"),
    0xDE: ("map", ">H"),
    0xDF: ("map", ">I"),
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(content: bytes, *, size: int = 0) -> Any:
    """Return the value in `content`, which was decompressed from a file of `size` bytes.

    Raises ValueError if it is truncated or followed by more bytes, nested too deeply, has far more values than a file
    of that size should, or contains an extension type or invalid UTF-8.

    >>> unpack(b"\\x82\\xa1a\\x93\\x01\\xff\\xc0\\xa1b\\xc4\\x01x")
    {'a': [1, -1, None], 'b': b'x'}
    """
    reader = _Reader(content, (FREE // 2 + TIMES * size) // VALUE)
    value = reader.value(0)
    if reader.position != len(content):
        raise ValueError(f"{len(content) - reader.position:,} bytes follow the value")
    return value


class _Reader:
    """Reads consecutive values from `content`."""

    def __init__(self, content: bytes, most: int) -> None:
        self.content = content
        self.position = 0
        self.left = most

    def value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST} levels")
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"too many values for {len(self.content):,} bytes")
        byte = self._take(1)[0]
        # 0x00-0x7f: positive fixint; 0xe0-0xff: negative fixint.
        if byte < 0x80:
            return byte
        if byte >= 0xE0:
            return byte - 0x100
        if byte in _CONSTANTS:
            return _CONSTANTS[byte]
        if byte in _NUMBERS:
            return self._number(_NUMBERS[byte])
        # 0x80-0x8f: fixmap; 0x90-0x9f: fixarray; 0xa0-0xbf: fixstr, with the size in the low bits.
        if byte < 0xC0:
            kind = "map" if byte < 0x90 else "list" if byte < 0xA0 else "str"
            return self._read_sized(kind, byte & (0x1F if kind == "str" else 0x0F), depth)
        if byte in _LENGTHS:
            kind, length = _LENGTHS[byte]
            return self._read_sized(kind, self._number(length), depth)
        raise ValueError(f"byte 0x{byte:02x} at {self.position - 1:,} begins no value of a known type")

    def _read_sized(self, kind: str, size: int, depth: int) -> Any:
        if kind == "bin":
            return self._take(size)
        if kind == "str":
            return self._take(size).decode("utf-8")
        if kind == "list":
            return [self.value(depth + 1) for _ in range(size)]
        return {self._key(depth): self.value(depth + 1) for _ in range(size)}

    def _key(self, depth: int) -> str | int:
        key = self.value(depth + 1)
        if isinstance(key, bytes):
            key = key.decode("utf-8")
        if not isinstance(key, str | int):
            raise ValueError(f"a map has the key {key!r:.40}, which is neither a text nor a number")
        return key

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, size: int) -> bytes:
        chunk = self.content[self.position : self.position + size]
        if len(chunk) < size:
            raise ValueError(f"cut short at byte {len(self.content):,}")
        self.position += size
        return chunk
