"""The vectors of a file that `osbert embed --update` replaces: texts that it has already are not embedded again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.embedder import Embedder
from osbert.inference.vectors.reading import open_vectors

HASH = np.dtype([("first", "<u8"), ("second", "<u8")])
"""The hash of a text, or of both texts of a pair, as two numbers."""


class EarlierVectors:
    """The vectors of a file, by their texts. Memory holds 24 bytes of each text; the vectors are in an unnamed file.

    `reduced`: whether they are int8, without their lengths.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any], embedder: Embedder, dtype: str) -> None:
        """Open and read a file of `osbert embed`.

        Raises UserError if it is damaged, or has sparse vectors or those of tokens, or if its model, settings or
        columns are not those of `facts` and `embedder`; and if new vectors, of a `dtype`, are to be more exact.
        """
        opened = open_vectors(path)
        stored = opened.settings
        self.reduced = stored.get("dtype", "float32") != "float32"
        wanted = {**facts, "vectors": json.loads(json.dumps(asdict(embedder.settings)))}
        names = ("weights", "tokenizer", "vectors", "columns")
        differing = [name for name in names if stored[name] != wanted[name]]
        if differing or (self.reduced and dtype == "float32"):
            reason = ", ".join(differing) or "dtype"
            raise UserError(
                f"{path} was made with other settings ({reason}), so its vectors cannot be used again. Remove --update "
                "to embed all texts.",
                code="mismatched-base",
            )
        with TemporaryFile(dir=path.parent) as file:
            for block in opened.blocks():
                file.write(block.tobytes())
            file.flush()
            shape = (opened.count, *embedder.shape)
            self._vectors = (
                np.memmap(file, np.float32, "r", shape=shape) if opened.count else np.empty(shape, np.float32)
            )
        hashes = np.fromiter((_hash(row.texts) for row in opened.all_rows()), HASH, opened.count)
        order = np.argsort(hashes["first"], kind="stable")
        self._order, self._firsts, self._seconds = order, hashes["first"][order], hashes["second"][order]

    def find(self, texts: Iterable[Sequence[str]]) -> NDArray[np.int64]:
        """Return the index (n,) of a row with each text, or both texts of a pair; -1 if there is none."""
        hashes = np.array([*map(_hash, texts)], HASH)
        if not len(self._order):
            return np.full(len(hashes), -1)
        indices = np.minimum(np.searchsorted(self._firsts, hashes["first"]), len(self._order) - 1)
        known = (self._firsts[indices] == hashes["first"]) & (self._seconds[indices] == hashes["second"])
        return np.where(known, self._order[indices], -1)

    def vectors(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors (k, ...) of rows."""
        rows: NDArray[np.float32] = self._vectors[indices]
        return rows


def _hash(texts: Sequence[str]) -> tuple[int, int]:
    digest = hashlib.blake2b(json.dumps([*texts]).encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
