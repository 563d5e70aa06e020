"""Writes the arrays of a corpus atomically, and returns their sizes and SHA-256 hashes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from osbert.files import flush, replace_file, whole_folder

Written = dict[str, dict[str, Any]]
"""File name -> {"bytes": its size, "sha256": the hash of its content}."""


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
    with whole_folder(folder) as aside:
        written = {f"{name}.npy": _write_array(aside / f"{name}.npy", array) for name, array in arrays.items()}
        # The new folder is complete beside it and takes its name when the block ends.
        shutil.rmtree(folder, ignore_errors=True)
    return written


def write_array(path: Path, array: np.ndarray) -> dict[str, Any]:
    """Write one .npy file atomically, and return its size and hash."""
    facts: dict[str, Any] = {}
    replace_file(path, lambda aside: facts.update(_write_array(aside, array)))
    return facts


def _write_array(path: Path, array: np.ndarray) -> dict[str, Any]:
    with open(path, "wb") as file:
        hashing = _Hashing(file)
        np.save(hashing, array, allow_pickle=False)
        file.flush()
        flush(file.fileno())
    return {"bytes": hashing.size, "sha256": hashing.hash.hexdigest()}
