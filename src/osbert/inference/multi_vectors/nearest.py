"""Reads many vectors a text from an .npz, searches them exactly, block by block, and names the tokens that matched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.data.multi_vectors import MultiVectors, maxsim, spans
from osbert.errors import UserError
from osbert.inference.vectors.files import map_array
from osbert.inference.vectors.nearest import RankedRows, require_width
from osbert.inference.vectors.reading import ArrayReader
from osbert.inference.vectors.sparse import name_piece

BLOCK = 2**15
"""Most vectors in a block, if a text has no more."""


class NearestMultiRows(RankedRows):
    """The rows with the largest MaxSim for each of Q queries, among the blocks compared so far.

    >>> queries = MultiVectors.of([np.array([[1, 0], [0, 1]], np.float32)], [[1, 2]])
    >>> nearest = NearestMultiRows(queries, count=1)
    >>> nearest.compare(MultiVectors.of([np.eye(2, dtype=np.float32), np.ones((1, 2), np.float32) / 2], [[1, 2], [3]]))
    >>> [(indices.tolist(), scores.tolist()) for indices, scores in nearest.ranked]
    [([0], [2.0])]
    """

    def __init__(self, queries: MultiVectors, count: int) -> None:
        super().__init__(len(queries), count)
        self.queries = queries

    def compare(self, block: MultiVectors, indices: NDArray[np.int64] | None = None) -> None:
        """Compare the next rows. Raises UserError if their vectors have another width."""
        require_width(self.queries.vectors.shape[1:], block.vectors.shape[1:])
        numbers = np.arange(self.rows, self.rows + len(block)) if indices is None else indices
        for query, scores in enumerate(maxsim(self.queries, block)):
            self.merge(query, numbers, scores)
        self.rows += len(block)


def name_matches(query: MultiVectors, text: MultiVectors, vocabulary: Sequence[str]) -> dict[str, float]:
    """Return what each match of a token of one query adds to its score with one text, as a fraction, largest first.

    A token of a query matches the token of the text with the largest product. Equal matches are added up.

    >>> query = MultiVectors.of([np.array([[2, 0], [0, 1]], np.float32)], [[0, 1]])
    >>> text = MultiVectors.of([np.array([[0, 2], [3, 0]], np.float32)], [[2, 0]])
    >>> name_matches(query, text, ["film", "good", "great"])
    {'film': 0.75, 'good > great': 0.25}
    """
    products = query.vectors @ text.vectors.T  # (tokens of the query, tokens of the text)
    largest = products.max(axis=1)
    total = float(largest.sum(dtype=np.float64)) or 1.0
    matches: dict[str, float] = {}
    for query_piece, text_piece, product in zip(
        query.ids.tolist(), text.ids[products.argmax(axis=1)].tolist(), largest.tolist()
    ):
        name = " > ".join(dict.fromkeys(name_piece(piece, vocabulary).strip() for piece in (query_piece, text_piece)))
        matches[name] = matches.get(name, 0.0) + product / total
    return dict(sorted(matches.items(), key=lambda match: -match[1]))


def read_texts(path: Path, indices: Sequence[int]) -> Iterator[MultiVectors]:
    """Yield the vectors of each of these texts of a file, of which no other part is read."""
    vectors, starts, ids = (map_array(path, name) for name in ("vectors", "starts", "ids"))
    for index in indices:
        tokens = slice(starts[index], starts[index + 1])
        yield MultiVectors.of([np.array(vectors[tokens], np.float32)], [ids[tokens]])


def read_blocks(open_array: ArrayReader) -> Iterator[MultiVectors]:
    """Yield the vectors of a file in blocks of texts.

    Raises ValueError if the arrays contradict each other, and UserError if a number is NaN or infinite.
    """
    with open_array("starts") as (file, shape, dtype):
        starts: NDArray[np.int64] = np.frombuffer(file.read(), dtype).astype(np.int64)
    with open_array("vectors") as (vectors, (count, width), kind), open_array("ids") as (ids, (pieces,), id_kind):
        if shape != (len(starts),) or starts[0] != 0 or (np.diff(starts) < 1).any() or {count, pieces} != {starts[-1]}:
            raise ValueError("its offsets are damaged")
        for first, last in spans(starts, BLOCK):
            size = int(starts[last] - starts[first])
            block = np.frombuffer(vectors.read(size * width * kind.itemsize), kind).reshape(size, width)
            if not np.isfinite(block).all():
                raise UserError("A vector has infinite or undefined numbers. Embed again.", code="not-finite")
            block_ids: NDArray[np.integer] = np.frombuffer(ids.read(size * id_kind.itemsize), id_kind).astype(np.int64)
            block_starts = starts[first : last + 1] - starts[first]
            yield MultiVectors(block.astype(np.float32, copy=False), block_starts, block_ids)
