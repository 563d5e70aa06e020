"""TensorFlow checkpoints without TensorFlow: name.index lists the tensors, and name.data-* holds their bytes.

The index is a sorted table. The value of its first, empty key is a header. Every other key is a tensor's name, and its
value is a protocol buffer with type, shape, file, offset, size and checksum
(tensorflow/core/protobuf/tensor_bundle.proto). The data are the tensors' bytes, little-endian, in row-major order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from osbert.errors import Problems, UserError
from osbert.files import replace_file
from osbert.guarded import read_bytes
from osbert_lab.tensorflow.checksum import mask_checksum
from osbert_lab.tensorflow.table import Row, read_number, read_table, write_number, write_table

INDEX = ".index"
TYPES = {
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    4: torch.uint8,
    5: torch.int16,
    6: torch.int8,
    9: torch.int64,
    10: torch.bool,
    14: torch.bfloat16,
    19: torch.float16,
}
"""TensorFlow's codes of numeric types."""
LARGEST_INDEX = 1 << 23
"""Largest index in bytes; a larger one is rejected."""
MOST_DIMENSIONS = 8
HEADER = b"\x08\x01\x1a\x02\x08\x01"
"""The header for one data file, little-endian, format version 1."""

Fields = dict[int, list[int | bytes]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A tensor in an index: the code `kind` of its type, shape, file and bytes, and its masked `checksum`."""

    kind: int
    shape: tuple[int, ...]
    shard: int
    start: int
    size: int
    checksum: int
    sliced: bool


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """An open checkpoint. `prefix`: its path without .index. `entries`: its tensors by name, sorted."""

    prefix: Path
    shards: int
    entries: Mapping[str, Entry]

    def data(self, shard: int) -> Path:
        """Return the path of a data file."""
        return _data(self.prefix, shard, self.shards)

    def read(self, name: str) -> Tensor:
        """Return a tensor. Raises UserError if its checksum or size is wrong, or its type is not numeric."""
        entry = self.entries[name]
        path = self.data(entry.shard)
        kind = TYPES.get(entry.kind)
        if kind is None or entry.sliced:
            what = "is kept in slices" if entry.sliced else f"is of type {entry.kind}, which holds no plain numbers"
            raise UserError(
                f"{self.prefix}{INDEX}: {name} {what}; such a tensor cannot be read.", code="unsupported-model"
            )
        if entry.size != math.prod(entry.shape) * kind.itemsize:
            raise UserError(
                f"{self.prefix}{INDEX}: {name} {entry.shape} cannot have {entry.size:,} bytes.", code="damaged-file"
            )
        with path.open("rb") as file:
            file.seek(entry.start)
            content = bytearray(file.read(entry.size))
        if mask_checksum(content) != entry.checksum:
            raise UserError(
                f"{path}: the checksum of {name} is another: the file is damaged. Copy it again.", code="damaged-file"
            )
        flat = torch.frombuffer(content, dtype=kind) if content else torch.empty(0, dtype=kind)
        return flat.view(entry.shape)


def open_bundle(prefix: Path) -> Bundle:
    """Open the checkpoint `prefix`.index.

    Raises UserError if the index is damaged, or a data file is missing or too short.
    """
    path = prefix.with_name(prefix.name + INDEX)
    try:
        rows = dict(read_table(read_bytes(path, most=LARGEST_INDEX)))
        header = _fields(rows.pop(b""))
        # A key that begins with a zero byte belongs to a slice of a tensor. The entry of such a tensor is marked.
        entries = {name.decode(): _entry(value) for name, value in rows.items() if name[0]}
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing.", code="missing-file") from error
    except (ValueError, KeyError) as error:
        reason = "it has no header" if isinstance(error, KeyError) else str(error)
        raise UserError(
            f"{path}: no readable TensorFlow index: {reason}. Copy it again.", code="damaged-file"
        ) from error
    if _number(header, 2):
        raise UserError(
            f"{path}: was written on a big-endian machine, which is not supported.", code="unsupported-model"
        )
    bundle = Bundle(prefix=prefix, shards=_number(header, 1), entries=dict(sorted(entries.items())))
    _check(bundle)
    return bundle


def write_bundle(tensors: Mapping[str, Tensor], prefix: Path) -> None:
    """Write `prefix`.data-00000-of-00001 and `prefix`.index, each atomically, the index last."""
    types = {dtype: number for number, dtype in TYPES.items()}
    rows: list[Row] = [(b"", HEADER)]

    def write(aside: Path) -> None:
        start = 0
        with aside.open("wb") as file:
            for name in sorted(tensors, key=str.encode):
                tensor = tensors[name].detach().cpu().contiguous()
                content = tensor.view(-1).view(torch.uint8).numpy().astype(np.uint8, copy=False).tobytes()
                # Fields of BundleEntryProto: 1 dtype, 2 shape, 4 offset, 5 size, 6 crc32c. Zeros are left out.
                shape = b"".join(_message(2, _field(1, size) if size else b"") for size in tensor.shape)
                entry_proto = _field(1, types[tensor.dtype]) + _message(2, shape)
                entry_proto += (_field(4, start) if start else b"") + (_field(5, len(content)) if content else b"")
                # 0x35 is the tag of field 6 with wire type 5: the checksum as four bytes.
                rows.append((name.encode(), entry_proto + b"\x35" + mask_checksum(content).to_bytes(4, "little")))
                file.write(content)
                start += len(content)

    prefix.parent.mkdir(parents=True, exist_ok=True)
    replace_file(_data(prefix, 0, 1), write)
    table = write_table(rows)
    replace_file(prefix.with_name(prefix.name + INDEX), lambda aside: aside.write_bytes(table))


def _data(prefix: Path, shard: int, shards: int) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")


def _check(bundle: Bundle) -> None:
    """Raise UserError that lists every data file that is missing or too short."""
    problems = Problems(heading=f"{bundle.prefix}{INDEX} names data files that are missing or incomplete")
    ends: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for entry in bundle.entries.values():
        ends[entry.shard] = max(ends.get(entry.shard, 0), entry.start + entry.size)
        sizes[entry.shard] = sizes.get(entry.shard, 0) + entry.size
    for shard, end in sorted(ends.items()):
        path = bundle.data(shard)
        if not path.is_file():
            problems.add(f"{path.name} is missing. Put it beside the index.", code="missing-file")
        elif path.stat().st_size < end:
            problems.add(
                f"{path.name} is cut short: expected {end:,} bytes, found {path.stat().st_size:,}.",
                code="damaged-file",
            )
        # Entries that overlap would let a small file stand for huge tensors.
        elif path.stat().st_size < sizes[shard]:
            problems.add(
                f"{path.name} has {path.stat().st_size:,} bytes, its tensors {sizes[shard]:,} together.",
                code="damaged-file",
            )
    problems.stop_if_any()


def _entry(value: bytes) -> Entry:
    fields = _fields(value)
    shape = _fields(_bytes(fields, 2))
    if len(shape.get(2, [])) > MOST_DIMENSIONS:
        raise ValueError(f"a tensor has {len(shape[2])} dimensions")
    return Entry(
        kind=_number(fields, 1),
        shape=tuple(_number(_fields(size), 1) for size in shape.get(2, []) if isinstance(size, bytes)),
        shard=_number(fields, 3),
        start=_number(fields, 4),
        size=_number(fields, 5),
        checksum=_number(fields, 6),
        sliced=7 in fields,
    )


def _fields(data: bytes) -> Fields:
    """Return the fields of a protocol buffer by number. Raises ValueError if it is not well-formed."""
    fields: Fields = {}
    for number, value in _each(data):
        fields.setdefault(number, []).append(value)
    return fields


def _each(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    offset = 0
    while offset < len(data):
        # The low three bits are the wire type: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
        tag, offset = read_number(data, offset)
        kind = tag & 7
        if kind == 0:
            value, offset = read_number(data, offset)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, offset = read_number(data, offset)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"an entry has a field of kind {kind}")
        if offset + size > len(data):
            raise ValueError("an entry is cut short")
        part = data[offset : offset + size]
        yield tag >> 3, part if kind == 2 else int.from_bytes(part, "little")
        offset += size


def _number(fields: Fields, number: int) -> int:
    # Protobuf: the last value of a repeated scalar counts, and a missing one is 0.
    value = fields.get(number, [0])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {number} of an entry is no number")
    return value


def _bytes(fields: Fields, number: int) -> bytes:
    value = fields.get(number, [b""])[-1]
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} of an entry is no message")
    return value


def _field(number: int, value: int) -> bytes:
    return write_number(number << 3) + write_number(value)


def _message(number: int, content: bytes) -> bytes:
    return write_number(number << 3 | 2) + write_number(len(content)) + content
