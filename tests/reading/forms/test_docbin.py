"""spaCy's DocBin, read without spaCy: one made by hand, every way in which it can be damaged, and spaCy's own."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.errors import Problems
from osbert.reading.file_forms.docbin import text_hash
from osbert.reading.msgpack import unpack
from osbert.reading.table import open_table
from osbert.reading.tagged.files import TagReading, read_tagged
from osbert.tasks.kinds.classify import Classify
from refusals import refusal

ORTH, ENT_IOB, ENT_TYPE = 65, 77, 78
OWN = (
    "eJzrWl6WWlScmZ+32EDPcGliSUlR8VxHZ08vbx9fP/+As4xHzjIePct4bFlJfnZqXvFRVo+jFjM6p3zj1obRDAQAEw5xRgL6HnEWGj2qNnebNK"
    "vYdFkaXzq59hACe1U4zqp/kvwHo2llz76doccePvTmgdG0sueye1IMn/hlvqv2RRdiha1MCalnhtL1hCIEDXAG5TyN3By2+4FfQd79xEhBQuph"
    "xpNqD8tEs3f3JujuhdGE1JMbbjB3vVGSOuT6tW0prezJ08lu27FlzWIYTSt7Fh1a4/PmZv16GE0re5qU1kd+KtTfCqPJNIZgeeD+Lkuz4fyvKT"
    "CaXHsIgeyirVEzereywmha2bOsuCAxObX4CC8jFACDgJFheU5qXnpJRvERDi4GSN5cXlxSlJmXXnyHQWjBQr0VrqVF+QWpiXmL/YPcF4dkpC4N"
    "zQMW3stS80oySypXpEJll2SkFqUuzcksLilekpeYm7ooL39Rftri/KL0pUX5+SXFi0uAOktBOpd8mD+zaUlyYknxpKYl6fn5KaftP0AcuDgpMe"
    "U0zLUNS9NyEtOLJzVuykgsji/Ny87LL8+Lh3jhEFbB1UA6Lz69KL+0oHjSEcYJQLSytDi1KD4lsSQRKNAARACWSuPO"
)
"""What DocBin.to_disk of spaCy 3.8 writes for the texts of `test_a_docbin_of_spacys_own`."""


def packed(value: Any) -> bytes:
    """Return a value as MessagePack, each of the longest of its forms."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value) if value < 0 else b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, str):
        return b"\xdb" + struct.pack(">I", len(value.encode())) + value.encode()
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(packed, value))
    return b"\xdf" + struct.pack(">I", len(value)) + b"".join(packed(key) + packed(one) for key, one in value.items())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_messagepack_is_read_back(value: Any) -> None:
    assert unpack(packed(value)) == value


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        b"\xd4\x01a",
        b"\xc0\xc0",
        b"\xa5a",
        b"\xa1\xff",
        b"\xcf\x01",
        b"\x91" * 100,
        b"\x81\x90\xc0",
        b"\xdd\xff\xff\xff\xff\xc0",
    ],
)
def test_broken_messagepack_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(content)


def docbin(words: list[list[tuple[str, str, int]]], **changed: Any) -> dict[str, Any]:
    """Return the fields of a DocBin: each document is words, with the types and IOB numbers of their entities."""
    tokens = [[text_hash(word), tag, text_hash(type_)] for doc in words for word, type_, tag in doc]
    return {
        "version": "0.1",
        "attrs": [ORTH, ENT_IOB, ENT_TYPE],
        "tokens": np.array(tokens, np.uint64).tobytes(),
        "spaces": np.array([place < len(doc) - 1 for doc in words for place in range(len(doc))]).tobytes(),
        "lengths": np.array([len(doc) for doc in words], np.int32).tobytes(),
        "strings": sorted({one for doc in words for word, type_, _ in doc for one in (word, type_)}),
        "cats": [{"good": 1.0, "bad": 0.0} for _ in words],
        "flags": [{"has_unknown_spaces": False} for _ in words],
    } | changed


WORDS = [
    [("🙂", "", 2), ("European", "Body", 3), ("Union", "Body", 1), ("German", "Body", 3), ("rejects", "", 2)],
    [("unmarked", "", 0)],
]


def written(folder: Path, fields: Any, name: str = "in.spacy") -> Path:
    path = folder / name
    path.write_bytes(zlib.compress(packed(fields)))
    return path


def test_a_docbin_made_by_hand(tmp_path: Path) -> None:
    path = written(tmp_path, docbin(WORDS[:1]))
    found = read_tagged(path, TagReading(), problems := Problems(heading=""), labelled=True)
    [sentence] = found.sentences
    assert not problems.count and sentence.text == "🙂 European Union German rejects" and "DocBin" in found.describe()
    assert [(one.start, one.end, one.type) for one in sentence.spans or ()] == [(1, 3, "Body"), (3, 4, "Body")]
    records = Classify(data=str(path)).source.read(path, problems, labelled=True)
    assert [record.label for record in records] == ["good"]
    path = written(tmp_path, docbin(WORDS))
    assert [row.source["entities"] for row in open_table(path).rows(problems)][1] is None


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ({"lengths": b"\x09\0\0\0"}, "lengths"),
        ({"lengths": b"\xff\xff\xff\xff\x07\0\0\0"}, "lengths"),
        ({"tokens": b"12345"}, ""),
        ({"attrs": [ENT_IOB]}, "ORTH"),
        ({"attrs": ["x"]}, "attributes"),
        ({"strings": 3}, "strings"),
        ({"spaces": None}, "spaces"),
    ],
)
def test_a_damaged_docbin_is_told(tmp_path: Path, changed: dict[str, Any], value: str) -> None:
    with refusal("damaged-file", "in.spacy", value):
        open_table(written(tmp_path, docbin(WORDS, **changed)))


def test_what_is_no_docbin(tmp_path: Path) -> None:
    for fields in ([], 7, {}, {"attrs": []}):
        with refusal("damaged-file", "in.spacy"):
            open_table(written(tmp_path, fields))
    path = written(tmp_path, docbin(WORDS))
    for content in (path.read_bytes()[:-40], b"\0\1\2 no zlib"):
        path.write_bytes(content)
        with refusal("damaged-file", "in.spacy"):
            open_table(path)
    problems = Problems(heading="")
    found = list(open_table(written(tmp_path, docbin(WORDS, strings=["a"]))).rows(problems))
    assert not found and problems.count == 2 and "record 1" in problems.messages[0]
    list(open_table(written(tmp_path, docbin(WORDS, cats=["x", 3]))).rows(problems))
    assert problems.count == 4


def test_a_docbin_of_spacys_own(tmp_path: Path) -> None:
    (tmp_path / "own.spacy").write_bytes(base64.b64decode(OWN))
    first, second = open_table(tmp_path / "own.spacy").rows(Problems(heading=""))
    assert first.source == {
        "text": "🙂 The name of European Union lists ORG roots.",
        "entities": [[14, 28, "ORG"]],
        "label": ["good"],
    }
    assert first.source["text"][14:28] == "European Union"
    assert second.source == {"text": "no entity here", "entities": None}
