"""Writes the arrays of a corpus, whole or not at all, with their sizes and hashes."""

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
    """A file being written whose content is hashed on the way."""

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
    """Write a folder of .npy files, whole or not at all; one that is there already is replaced.

    Returns each file's size and hash, as the manifest keeps them.
    """
    with whole_folder(folder) as aside:
        written = {f"{name}.npy": _write_array(aside / f"{name}.npy", array) for name, array in arrays.items()}
        shutil.rmtree(folder, ignore_errors=True)
    return written


def write_array(path: Path, array: np.ndarray) -> dict[str, Any]:
    """Write one .npy file, whole or not at all, and return its size and hash."""
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
