"""Sorted tables, the format of a TensorFlow index: keys and values in blocks with checksums, as in LevelDB.

A table consists of data blocks, an index block with the last key and the location of each, and a footer of 48 bytes. An
entry omits the prefix that its key shares with the previous key. After the entries a block lists its restart points,
the offsets of entries with complete keys. Each block is followed by a byte for its compression and a masked checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from osbert_lab.tensorflow.checksum import mask_checksum

MAGIC = 0xDB4775248B80FB57
FOOTER = 48
TRAILER = 5
BLOCK = 1 << 18
"""Bytes of a block after which TensorFlow starts the next."""
INTERVAL = 16
"""Entries from one restart point to the next."""
LONGEST_KEY = 1024
"""Longest key in bytes; the name of a variable has about 80."""
MOST_ROWS = 100_000
"""Most rows of a table; a training checkpoint of BERT LARGE has 1,200."""

Row = tuple[bytes, bytes]


def read_table(content: bytes) -> list[Row]:
    """Return the keys and values of a table, in its order. Raises ValueError if it is damaged."""
    if len(content) < FOOTER:
        raise ValueError(f"its {len(content)} bytes are fewer than a footer has")
    footer = content[-FOOTER:]
    if int.from_bytes(footer[-8:], "little") != MAGIC:
        raise ValueError("it does not end as such a file does")
    # The footer starts with the handles of an unused meta-index block and of the index block.
    _, offset = _read_handle(footer, 0)
    index, _ = _read_handle(footer, offset)
    rows: list[Row] = []
    behind = 0
    for _, handle in _rows(_block(content, index)):
        (start, size), _ = _read_handle(handle, 0)
        # Blocks must not overlap: a small file cannot unfold into a huge table.
        if start < behind:
            raise ValueError(f"the block at byte {start:,} lies before the end of another")
        behind = start + size + TRAILER
        before = len(rows)
        for row in _rows(_block(content, (start, size))):
            if len(rows) == MOST_ROWS:
                raise ValueError(f"it has more than {MOST_ROWS:,} rows")
            rows.append(row)
        if len(rows) == before:
            raise ValueError(f"the block at byte {start:,} has no rows")
    return rows


def write_table(rows: Sequence[Row], *, block: int = BLOCK, interval: int = INTERVAL) -> bytes:
    """Return a table of rows whose keys ascend.

    `block`: bytes after which the next block starts. `interval`: entries from one restart point to the next.
    """
    written = bytearray()
    index: list[Row] = []
    group: list[Row] = []
    for row_number, (key, value) in enumerate(rows):
        group.append((key, value))
        last = row_number == len(rows) - 1
        if last or sum(len(row_key) + len(other) for row_key, other in group) >= block:
            index.append((_successor(key) if last else key, _append(written, _pack_block(group, interval))))
            group = []
    handles = _append(written, _pack_block([], interval)) + _append(written, _pack_block(index, 1))
    return bytes(written + handles.ljust(FOOTER - 8, b"\0") + MAGIC.to_bytes(8, "little"))


def read_number(data: bytes, position: int) -> tuple[int, int]:
    """Return the varint at offset `position` and the offset after it. Raises ValueError if it does not end."""
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ValueError("a number has no end")


def write_number(value: int) -> bytes:
    """Return a non-negative number as a varint: seven bits a byte, lowest first."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def _block(content: bytes, handle: tuple[int, int]) -> bytes:
    start, size = handle
    end = start + size
    if end + TRAILER > len(content):
        raise ValueError(f"a block ends at byte {end + TRAILER:,}, but there are {len(content):,}")
    kind, wanted = struct.unpack_from("<BI", content, end)
    if mask_checksum(content[start : end + 1]) != wanted:
        raise ValueError(f"the checksum of the block at byte {start:,} is another")
    if kind:
        raise ValueError(f"the block at byte {start:,} is compressed (kind {kind}), which TensorFlow's indexes are not")
    return content[start:end]


def _rows(block: bytes) -> Iterator[Row]:
    # The block ends with its restart offsets and their number, four bytes each. They are not needed to read on.
    (count,) = struct.unpack_from("<I", block, len(block) - 4) if len(block) >= 4 else (0,)
    end = len(block) - 4 * (count + 1)
    if end < 0:
        raise ValueError("a block is shorter than its list of whole keys")
    offset, key = 0, b""
    while offset < end:
        shared, offset = read_number(block, offset)
        suffix_length, offset = read_number(block, offset)
        size, offset = read_number(block, offset)
        if shared > len(key) or offset + suffix_length + size > end:
            raise ValueError("an entry is longer than its block")
        if shared + suffix_length > LONGEST_KEY:
            raise ValueError(f"a key has {shared + suffix_length:,} bytes, more than {LONGEST_KEY:,}")
        key = key[:shared] + block[offset : offset + suffix_length]
        offset += suffix_length
        yield key, block[offset : offset + size]
        offset += size


def _pack_block(rows: Sequence[Row], interval: int) -> bytes:
    """Return a block without its trailer."""
    packed, whole, before = bytearray(), [0], b""
    for row_number, (key, value) in enumerate(rows):
        shared = 0
        if row_number % interval:
            shared = next((n for n, (a, b) in enumerate(zip(before, key)) if a != b), min(len(before), len(key)))
        elif row_number:
            whole.append(len(packed))
        packed += write_number(shared) + write_number(len(key) - shared) + write_number(len(value))
        packed += key[shared:] + value
        before = key
    return bytes(packed + struct.pack(f"<{len(whole) + 1}I", *whole, len(whole)))


def _append(written: bytearray, block: bytes) -> bytes:
    """Append a block and its trailer; return its handle, the offset and the size as varints."""
    handle = write_number(len(written)) + write_number(len(block))
    written += block + b"\0"
    written += mask_checksum(block + b"\0").to_bytes(4, "little")
    return handle


def _read_handle(data: bytes, offset: int) -> tuple[tuple[int, int], int]:
    start, offset = read_number(data, offset)
    size, offset = read_number(data, offset)
    return (start, size), offset


def _successor(key: bytes) -> bytes:
    """Return a short key that is not less than `key`, as LevelDB writes for the last block in the index."""
    for index, byte in enumerate(key):
        if byte != 0xFF:
            return key[:index] + bytes([byte + 1])
    return key
