"""The hash of a file by blocks: whole for small files, evenly spaced blocks with both ends for large ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from osbert.reading import data_file
from osbert.reading.data_file import all_sampled_sha256, sampled_sha256


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 64])
def test_every_byte_of_a_small_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(data_file, "BLOCK", 16)
    monkeypatch.setattr(data_file, "BLOCKS", 4)
    path, content = tmp_path / "a.txt", os.urandom(size)
    path.write_bytes(content)
    hashes = {sampled_sha256(path)}
    for place in range(size):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        hashes.add(sampled_sha256(path))
    path.write_bytes(content + b"x")
    hashes.add(sampled_sha256(path))
    assert len(hashes) == size + 2


def test_of_a_large_file_evenly_spaced_blocks_count_with_both_ends(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(data_file, "BLOCK", 16)
    monkeypatch.setattr(data_file, "BLOCKS", 4)
    path, content = tmp_path / "a.txt", bytes(316)
    path.write_bytes(content)
    before, seen = sampled_sha256(path), []
    for place in range(len(content)):
        path.write_bytes(content[:place] + b"x" + content[place + 1 :])
        if sampled_sha256(path) != before:
            seen.append(place)
    assert seen == [*range(16), *range(100, 116), *range(200, 216), *range(300, 316)]
    assert all_sampled_sha256([path, path]) == [sampled_sha256(path)] * 2
