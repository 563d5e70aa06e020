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

from osbert.data.multi_vectors import MultiVectors, rows_of
from osbert.errors import UserError
from osbert.inference.embedder import Embedder
from osbert.inference.kinds import KINDS
from osbert.inference.vectors.files import map_array
from osbert.inference.vectors.reading import open_vectors

HASH = np.dtype([("first", "<u8"), ("second", "<u8")])
"""The hash of a text, or of both texts of a pair, as two numbers."""


class EarlierVectors:
    """The vectors of a file, by their texts. Memory holds 24 bytes of each text.

    Dense vectors are in an unnamed file; others are mapped. `reduced`: whether they are int8, without their lengths.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any], embedder: Embedder, dtype: str) -> None:
        """Open and read a file of `osbert embed`.

        Raises UserError if it is damaged, or if its model, settings or columns are not those of `facts` and `embedder`;
        and if new vectors, of a `dtype`, are to be more exact.
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
        self._width, self._kind = embedder.shape[-1], opened.kind
        if opened.kind == "dense":
            with TemporaryFile(dir=path.parent) as file:
                for block in opened.blocks():
                    file.write(block.tobytes())
                file.flush()
                shape = (opened.count, *embedder.shape)
                self._vectors: Any = (
                    np.memmap(file, np.float32, "r", shape=shape) if opened.count else np.empty(shape, np.float32)
                )
        else:
            for _ in KINDS[opened.kind].blocks(opened):  # which compares the checksums
                pass
            sparse = opened.kind == "sparse"
            arrays = ("indptr", "data", "indices") if sparse else ("starts", "vectors", "ids")
            starts, numbers, pieces = (map_array(path, name) for name in arrays)
            self._vectors = (starts, numbers, pieces) if sparse else MultiVectors(numbers, starts, pieces)
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

    def vectors(self, indices: NDArray[np.int64]) -> Any:
        """Return the vectors of rows, of the embedder's kind; dense ones (k, ...)."""
        if self._kind != "sparse":
            return self._vectors[indices]
        starts, weights, pieces = self._vectors
        rows, starts = rows_of(starts, indices)
        from scipy.sparse import csr_array  # which dense vectors do not need

        return csr_array((weights[rows], pieces[rows], starts), shape=(len(indices), self._width))


def _hash(texts: Sequence[str]) -> tuple[int, int]:
    digest = hashlib.blake2b(json.dumps([*texts]).encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
