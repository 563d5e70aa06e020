"""Writes the arrays of a corpus atomically, with sizes and SHA-256 hashes, and checks them against the manifest."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from osbert.errors import UserError
from osbert.files import file_sha256, flush, replacing, whole_folder
from osbert.guarded import leads_below, require_regular

Written = dict[str, dict[str, Any]]
"""File name -> {"bytes": its size, "sha256": the hash of its content}."""
ADVICE = "the corpus is damaged, or files of another one lie in it; build it again"


class _Hashing:
    """A file object that computes the hash and the size of what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        self.hash.update(data)
        written = self.file.write(data)
        self.size += written
        return written


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> Written:
    """Write a folder of .npy files atomically; an existing folder is replaced.

    Returns the size and the hash of each file, for the manifest.
    """
    written: Written = {}
    with whole_folder(folder) as aside:
        for name, array in arrays.items():
            written[f"{name}.npy"] = _write_array(aside / f"{name}.npy", array)
        # The new folder is complete beside it and takes its name when the block ends.
        shutil.rmtree(folder, ignore_errors=True)
    return written


def write_array(path: Path, array: np.ndarray) -> dict[str, Any]:
    """Write one .npy file atomically, and return its size and hash."""
    with replacing(path) as aside:
        return _write_array(aside, array)


def _write_array(path: Path, array: np.ndarray) -> dict[str, Any]:
    with open(path, "wb") as file:
        hashing = _Hashing(file)
        np.save(hashing, array, allow_pickle=False)
        file.flush()
        flush(file.fileno())
    return {"bytes": hashing.size, "sha256": hashing.hash.hexdigest()}


def files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield each file of arrays with its entry in the manifest: "bytes" and "sha256".

    Raises UserError if the manifest names a file outside the folder.
    """
    for shard in manifest["shards"]:
        for name, written in shard["files"].items():
            if not (leads_below(shard["name"]) and leads_below(name)):
                raise UserError(
                    f"{folder}: the manifest names {shard['name']!r:.80} and {name!r:.80}: {ADVICE}.",
                    code="damaged-file",
                )
            yield folder / shard["name"] / name, written
    yield folder / "counts.npy", manifest["counts"]


def wrong_size(path: Path, size: int) -> str:
    """Return an error message unless a file has `size` bytes; "" if it has."""
    try:
        require_regular(path)
        actual_size = path.stat().st_size
    except FileNotFoundError:
        return f"{path}: missing"
    return "" if actual_size == size else f"{path}: {actual_size:,} bytes, must be {size:,}"


def wrong_content(path: Path, sha256: str) -> str:
    """Return an error message unless the content of a file has this hash; "" if it has. Reads all of it."""
    try:
        require_regular(path)
        actual_hash = file_sha256(path)
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    return "" if actual_hash == sha256 else f"{path}: not what was written when the corpus was built"
