"""Checkpoints of TensorFlow that are small files and costly to read: a name -> what writes one and opens it."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

from hostile_folders import Attack, Opening

from osbert_lab.tensorflow.bundle import open_bundle
from osbert_lab.tensorflow.checksum import mask_checksum
from osbert_lab.tensorflow.table import MAGIC, write_number

HEAVY = {"tensorflow_index_of_many_rows"}
"""Those that take seconds to write."""
BOUNDED: set[str] = set()
"""Those that may be read, within bounds."""


def _index(folder: Path, key: bytes, count: int) -> Opening:
    """Write an index whose rows all repeat one key, with a byte of their own."""
    block = write_number(0) + write_number(len(key)) + write_number(0) + key
    block += (write_number(len(key)) + write_number(1) + write_number(0) + b"z") * count
    block += struct.pack("<2I", 0, 1)
    rows = write_number(0) + write_number(len(block))
    index = write_number(0) + write_number(1) + write_number(len(rows)) + b"z" + rows + struct.pack("<2I", 0, 1)
    whole = b"".join(part + b"\0" + mask_checksum(part + b"\0").to_bytes(4, "little") for part in (block, index))
    handles = rows + write_number(len(block) + 5) + write_number(len(index))
    (folder / "model.ckpt.index").write_bytes(whole + handles.ljust(40, b"\0") + MAGIC.to_bytes(8, "little"))
    return partial(open_bundle, folder / "model.ckpt")


def tensorflow_index_of_shared_prefixes(folder: Path) -> Opening:
    return _index(folder, b"k" * 100_000, 60_000)


def tensorflow_index_of_many_rows(folder: Path) -> Opening:
    return _index(folder, b"k" * 1000, 1_000_000)


ATTACKS: dict[str, Attack] = {
    function.__name__: function for function in (tensorflow_index_of_shared_prefixes, tensorflow_index_of_many_rows)
}
