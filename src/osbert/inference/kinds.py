"""What a search in each kind of vectors does: which rows are nearest, and why a row is.

The work is in vectors/, for dense and sparse ones, and multi_vectors/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from osbert.data.multi_vectors import MultiVectors
from osbert.extensions import extensions
from osbert.inference.multi_vectors.index import RESIDUAL_BITS, open_residual_index
from osbert.inference.multi_vectors.nearest import NearestMultiRows, name_matches, read_blocks, read_texts
from osbert.inference.vectors import sparse
from osbert.inference.vectors.bits import open_bit_index
from osbert.inference.vectors.nearest import NearestRows
from osbert.inference.vectors.reading import BLOCK, BlockReader, VectorFile
from osbert.inference.vectors.sparse import Fractions

Ranking = tuple[NDArray[np.int64], NDArray[np.float32]]
"""The indices and scores (k,) of the rows nearest to a query, the nearest first."""
Chosen = Sequence[Sequence[int]]
"""For each query the indices of some rows."""
INDEXES = "osbert.inference.vectors.indexes"
"""The entry points of further indexes: functions of a file of dense vectors and the name of the backend."""


class Nearest(Protocol):
    """The rows nearest to each of some queries, among the blocks compared so far."""

    rows: int

    @property
    def ranked(self) -> list[Ranking]:
        """The ranking of each query; of equal scores the lower index comes first."""
        ...

    def compare(self, block: Any, indices: NDArray[np.int64] | None = None) -> None:
        """Compare the next rows; `indices` (n,): what stands for them in `ranked`, by default their numbers."""
        ...


class Index(Protocol):
    """An approximate search."""

    def find(self, queries: Any, count: int) -> Sequence[Ranking]:
        """Return the rows nearest to each query, at most `count`."""
        ...


def open_dense_index(opened: VectorFile, backend: str, watch: Callable[[str], None]) -> Index:
    """Return the bits of a file of dense vectors, or the index of a library."""
    if backend == "binary":
        return open_bit_index(opened)
    index = extensions(INDEXES)[backend].load()(opened, backend)
    if index.recall is not None:
        watch(f"{backend} finds {index.recall:.1%} of the 10 nearest, measured when it was built.")
    return index


def list_pieces(
    queries: Any, chosen: Chosen, opened: VectorFile, vocabulary: Sequence[str]
) -> list[Mapping[int, Fractions]]:
    """Return for each query the pieces that its `chosen` rows share with it."""
    blocks = KINDS["sparse"].blocks(opened) if any(chosen) else ()
    return sparse.divide_scores(queries, chosen, blocks, vocabulary)


def list_tokens(
    queries: Any, chosen: Chosen, opened: VectorFile, vocabulary: Sequence[str]
) -> list[Mapping[int, Fractions]]:
    """Return for each query the tokens of its `chosen` rows that matched its own."""
    wanted = sorted({index for indices in chosen for index in indices})
    texts = dict(zip(wanted, read_texts(opened.path, wanted)))
    return [
        {index: name_matches(queries[number : number + 1], texts[index], vocabulary) for index in indices}
        for number, indices in enumerate(chosen)
    ]


@dataclass(frozen=True, kw_only=True)
class KindOfVectors:
    """A kind of vectors. `score`: what a comparison gives; `backends`: the searches that there are, beside the exact.

    `stack` returns blocks as one; `read` yields the vectors of a file in blocks, None as dense ones. `nearest` returns
    an exact search for the rows nearest to each query, at most so many; `open_index` the index of a file for a backend,
    built if it is missing, and calls its last argument with a sentence on a new one. `explain` returns for each query
    what makes up the scores of its chosen rows, by their indices.
    """

    stack: Callable[[Sequence[Any]], Any]
    nearest: Callable[[Any, int], Nearest]
    explain: Callable[[Any, Chosen, VectorFile, Sequence[str]], list[Mapping[int, Fractions]]]
    read: BlockReader | None = None
    open_index: Callable[[VectorFile, str, Callable[[str], None]], Index] | None = None
    score: str = "score"
    backends: tuple[str, ...] = ("auto", "exact")

    def blocks(self, opened: VectorFile) -> Iterator[Any]:
        """Yield the vectors of a file in blocks."""
        return opened.blocks(self.read)

    def require_comparable(self, opened: VectorFile, shape: tuple[int, ...]) -> None:
        """Raise UserError if vectors are dense and several a text: in the file, or by the `shape` of one text's."""
        if self.score == "cosine":
            opened.require_single(np.empty((0, *shape), np.float32))


DENSE = KindOfVectors(
    stack=np.concatenate,
    nearest=NearestRows,
    open_index=open_dense_index,
    explain=lambda queries, chosen, opened, vocabulary: [{} for _ in chosen],
    score="cosine",
    backends=("auto", "exact", "binary", *extensions(INDEXES)),
)
"""One vector (D,) a text, compared by cosines."""
SPARSE = KindOfVectors(
    stack=sparse.stack_rows,
    nearest=sparse.NearestSparseRows,
    explain=list_pieces,
    read=lambda open_array: sparse.read_blocks(open_array, BLOCK),
)
"""Weights (V,) of pieces for each text, most of which are 0, compared by dot products (SPLADE)."""
MANY = KindOfVectors(
    stack=MultiVectors.stack,
    nearest=NearestMultiRows,
    open_index=open_residual_index,
    explain=list_tokens,
    read=read_blocks,
    backends=("auto", "exact", *RESIDUAL_BITS),
)
"""Many vectors a text, compared token by token (ColBERT)."""
KINDS: Mapping[str, KindOfVectors] = {"dense": DENSE, "tokens": DENSE, "sparse": SPARSE, "multi": MANY}
"""The kinds by `models/forms.py:VectorKind`."""
