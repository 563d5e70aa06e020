"""Checks of an ONNX file before onnxruntime opens it: no graph within a node, no functions.

A node with a graph of its own (Loop, Scan, If) can run for ever, and functions that call functions unfold to any size.
No graph that osbert writes has either. The file is read as protobuf, without the library onnx: fields are skipped by
their lengths, so that the weights are not read.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

NODES = 1_000_000
"""Most fields of nodes; a node has about ten, a model of a hundred layers has 5,000 nodes."""
GRAPH, FUNCTIONS = 7, 25
"""Fields of a ModelProto (onnx.proto3)."""
NODE, ATTRIBUTE = 1, 5
"""Fields of a GraphProto and of a NodeProto."""
GRAPHS_WITHIN = (6, 11)
"""Fields of an AttributeProto with a graph, and with several."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf."""

Part = tuple[int, int]
"""The first byte of a message, and the one after its last."""


def find_hostile(path: Path) -> str:
    """Return what a graph has that none of osbert's has: graphs within nodes, functions, far too many nodes; or "".

    Raises ValueError if the file is no ONNX file.
    """
    if not path.stat().st_size:
        raise ValueError("it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        seen = 0
        for field, graph in _fields(content, (0, len(content))):
            if field == FUNCTIONS:
                return "it has functions"
            for node in _named(content, graph, NODE) if field == GRAPH else ():
                for number, part in _fields(content, node):
                    seen += 1
                    if seen > NODES:
                        return f"its nodes have more than {NODES:,} fields"
                    if number == ATTRIBUTE and any(one in GRAPHS_WITHIN for one, _ in _fields(content, part)):
                        return "a node has a graph of its own, as Loop, Scan and If have"
    return ""


def _named(content: mmap.mmap, part: Part, field: int) -> Iterator[Part]:
    return (inside for number, inside in _fields(content, part) if number == field)


def _fields(content: mmap.mmap, part: Part) -> Iterator[tuple[int, Part]]:
    """Yield the number of each field of a message, and its bytes. Raises ValueError where they are no message."""
    start, end = part
    while start < end:
        key, start = _number(content, start, end)
        wire = key & 7
        if wire == VARINT:
            last = _number(content, start, end)[1]
        elif wire == BYTES:
            length, start = _number(content, start, end)
            last = start + length
        elif wire in (FIXED64, FIXED32):
            last = start + (8 if wire == FIXED64 else 4)
        else:
            raise ValueError("it is no ONNX file")
        if last > end:
            raise ValueError("it is cut short, or no ONNX file")
        yield key >> 3, (start, last)
        start = last


def _number(content: mmap.mmap, start: int, end: int) -> tuple[int, int]:
    """Return a varint, seven bits a byte with the lowest first, and the index after it."""
    value = 0
    for shift, index in enumerate(range(start, min(end, start + 10))):
        value |= (content[index] & 0x7F) << (7 * shift)
        if content[index] < 0x80:
            return value & (2**64 - 1), index + 1
    raise ValueError("it is cut short, or no ONNX file")
