"""TensorFlow's checkpoints: equal to TensorFlow's own to the byte, tables of every layout, and damage told."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert_lab.tensorflow.bundle import open_bundle, write_bundle
from osbert_lab.tensorflow.checksum import POLYNOMIAL, checksum, mask_checksum
from osbert_lab.tensorflow.table import MAGIC, read_table, write_table
from refusals import refusal

WRITTEN = Path(__file__).parent
"""Checkpoints that TensorFlow wrote: write_checkpoints.py there."""


def bit_by_bit(data: bytes) -> int:
    """The definition: the remainder of a division of polynomials, a bit at a time."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_checksums_are_those_of_the_standard() -> None:
    """RFC 3720, appendix B.4; and the check value of the catalogues."""
    assert checksum(b"123456789") == 0xE3069283
    assert checksum(bytes(32)) == 0x8A9136AA
    assert checksum(b"\xff" * 32) == 0x62A8AB43
    assert checksum(bytes(range(32))) == 0x46DD794E
    assert checksum(b"") == 0
    data = np.random.default_rng(0).bytes(9000)
    for length in (1, 255, 256, 257, 511, 512, 1025, 9000):
        assert checksum(data[:length]) == bit_by_bit(data[:length]), length
    rotated = checksum(data) >> 15 | (checksum(data) & 0x7FFF) << 17
    assert mask_checksum(data) == (rotated + 0xA282EAD8) % (1 << 32)


@pytest.mark.parametrize("name", ["bert/bert_model.ckpt", "kinds", "two"])
def test_what_tensorflow_wrote_is_read_and_written_again_to_the_byte(tmp_path: Path, name: str) -> None:
    bundle = open_bundle(WRITTEN / name)
    tensors = {each: bundle.read(each) for each in bundle.entries if each != "text"}
    write_bundle(tensors, tmp_path / "again")
    again = open_bundle(tmp_path / "again")
    assert {each: entry.shape for each, entry in again.entries.items()} == {
        k: tuple(t.shape) for k, t in tensors.items()
    }
    assert all(torch.equal(again.read(each), tensor) for each, tensor in tensors.items())
    if name.startswith("bert"):
        for suffix in (".index", ".data-00000-of-00001"):
            theirs = (WRITTEN / f"{name}{suffix}").read_bytes()
            assert (tmp_path / f"again{suffix}").read_bytes() == theirs


def test_every_type_has_its_numbers() -> None:
    bundle = open_bundle(WRITTEN / "kinds")
    assert bundle.read("bfloat16").tolist() == [1.5, -2.0] and bundle.read("bfloat16").dtype == torch.bfloat16
    assert bundle.read("bool").tolist() == [True, False]
    assert bundle.read("empty").shape == (0, 3)
    assert bundle.read("float16").tolist() == [[0.5], [65504.0]]
    assert bundle.read("float64").item() == 0.1
    assert bundle.read("int64").tolist() == list(range(-1, 300))
    assert open_bundle(WRITTEN / "two").read("b").tolist() == [98.0, 98.0]
    with refusal("unsupported-model", "kinds.index", "7"):
        bundle.read("text")
    with refusal("unsupported-model", "sliced.index"):
        open_bundle(WRITTEN / "sliced").read("part")


@settings(max_examples=40, deadline=None)
@given(
    rows=st.dictionaries(st.binary(max_size=12), st.binary(max_size=40), max_size=30),
    block=st.integers(1, 200),
    interval=st.integers(1, 20),
)
def test_tables_come_back_whatever_their_layout(rows: dict[bytes, bytes], block: int, interval: int) -> None:
    ordered = sorted(rows.items())
    assert read_table(write_table(ordered, block=block, interval=interval)) == ordered


def test_a_table_made_by_hand_is_read() -> None:
    """Two blocks; the second key leaves out the three bytes that it shares with the first."""

    def sealed(block: bytes) -> bytes:
        return block + b"\0" + struct.pack("<I", mask_checksum(block + b"\0"))

    first = b"\x00\x04\x02" + b"bert" + b"v1" + b"\x03\x01\x01" + b"g" + b"w" + struct.pack("<2I", 0, 1)
    second = b"\x00\x01\x00" + b"z" + struct.pack("<2I", 0, 1)
    handles = [bytes([0, len(first)]), bytes([len(first) + 5, len(second)])]
    index = b"\x00\x04\x02" + b"besz" + handles[0] + b"\x00\x01\x02" + b"z" + handles[1] + struct.pack("<3I", 0, 9, 2)
    start = len(first) + len(second) + 10
    footer = (bytes([0, 0, start, len(index)])).ljust(40, b"\0") + struct.pack("<Q", MAGIC)
    table = sealed(first) + sealed(second) + sealed(index) + footer
    assert read_table(table) == [(b"bert", b"v1"), (b"berg", b"w"), (b"z", b"")]


def test_compressed_and_damaged_blocks_are_told(tmp_path: Path) -> None:
    index = (WRITTEN / "two.index").read_bytes()
    for shard in (0, 1):
        shutil.copy(WRITTEN / f"two.data-0000{shard}-of-00002", tmp_path)
    file = tmp_path / "two.index"

    def told() -> str:
        with refusal("damaged-file", "two.index") as caught:
            open_bundle(tmp_path / "two")
        return str(caught.value)

    block = index[: index.index(b"\x00\x00\x00\x00\x01\x00\x00\x00") + 8]
    squeezed = block + b"\x01"
    file.write_bytes(squeezed + struct.pack("<I", mask_checksum(squeezed)) + index[len(squeezed) + 4 :])
    assert "is compressed (kind 1)" in told()
    file.write_bytes(bytes([index[0] ^ 1]) + index[1:])
    assert "the checksum of the block at byte 0 is another" in told()
    for length in (0, 20, 47):
        file.write_bytes(index[:length])
        assert f"its {length} bytes are fewer" in told()
    file.write_bytes(index[:-1])
    assert "does not end as such a file does" in told()
    file.write_bytes(write_table([(b"a", b"\x08")]))
    assert "it has no header" in told()
    for entry in (b"\x08", b"\x0b", b"\x12\x7f", b"\x10\x01", b"\x0a\x01\x00"):
        file.write_bytes(write_table([(b"", b"\x08\x01"), (b"a", entry)]))
        assert "a number has no end" in told() or "entry" in told()
    file.unlink()
    with refusal("missing-file", "two.index"):
        open_bundle(tmp_path / "two")


def test_data_that_are_not_those_of_the_index_are_told(tmp_path: Path) -> None:
    for path in WRITTEN.glob("two.*"):
        shutil.copy(path, tmp_path)
    data = tmp_path / "two.data-00001-of-00002"
    data.write_bytes(data.read_bytes()[:-1] + b"\x01")
    with refusal("damaged-file", "two.data", "00001", "00002"):
        open_bundle(tmp_path / "two").read("b")
    data.write_bytes(data.read_bytes()[:-1])
    (tmp_path / "two.data-00000-of-00002").unlink()
    with refusal("missing-file", "00000", "00002", "00001", "8", "7"):
        open_bundle(tmp_path / "two")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle({"a": torch.ones(3)}, tmp_path / "x")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("osbert.files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_bundle({"a": torch.zeros(3)}, tmp_path / "x")
    assert open_bundle(tmp_path / "x").read("a").tolist() == [1, 1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.data-00000-of-00001", "x.index"]
