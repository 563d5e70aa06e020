"""What a search in each kind of vectors does: which rows are nearest, and why a row is.

The rooms beside this file hold the work: vectors/ for dense ones, sparse_vectors/ and multi_vectors/.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from osbert.data.multi_vectors import MultiVectors
from osbert.inference.multi_vectors.index import RESIDUAL_BITS, open_residual_index
from osbert.inference.multi_vectors.nearest import NearestMultiRows, name_matches
from osbert.inference.multi_vectors.reading import read_blocks, read_texts
from osbert.inference.vectors.approximate import LIBRARIES, open_index
from osbert.inference.vectors.bits import open_bit_index
from osbert.inference.vectors.nearest import NearestRows
from osbert.inference.vectors.reading import BLOCK, VectorFile

Ranking = tuple[NDArray[np.int64], NDArray[np.float32]]
"""The indices and scores (k,) of the rows nearest to a query, the nearest first."""
Fractions = dict[str, float]
"""What parts of a query and a text add to their score, as fractions of it, by their names."""


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


class KindOfVectors(ABC):
    """A kind of vectors. `score`: what a comparison gives; `backends`: the searches that there are."""

    score: ClassVar[str] = "score"
    backends: ClassVar[tuple[str, ...]] = ("auto", "exact")

    @abstractmethod
    def stack(self, blocks: Sequence[Any]) -> Any:
        """Return blocks as one."""

    def blocks(self, opened: VectorFile) -> Iterator[Any]:
        """Yield the vectors of a file in blocks."""
        return opened.blocks()

    @abstractmethod
    def nearest(self, queries: Any, count: int) -> Nearest:
        """Return an exact search for the `count` rows nearest to each query."""

    def require_comparable(self, opened: VectorFile, shape: tuple[int, ...]) -> None:
        """Raise UserError unless vectors of this shape can be compared with queries."""
        return

    def open_index(self, opened: VectorFile, backend: str, watch: Callable[[str], None]) -> Index:
        """Return the index of a file, built if it is missing; `watch` is called with a sentence on a new one."""
        raise NotImplementedError

    def explain(
        self, queries: Any, chosen: Sequence[Sequence[int]], opened: VectorFile, vocabulary: Sequence[str]
    ) -> list[Mapping[int, Fractions]]:
        """Return for each query what makes up the scores of its `chosen` rows, by their indices."""
        return [{} for _ in chosen]


class DenseVectors(KindOfVectors):
    """One vector (D,) a text, compared by cosines."""

    score = "cosine"
    backends = ("auto", "exact", "binary", *LIBRARIES)

    def stack(self, blocks: Sequence[Any]) -> Any:
        """Return blocks as one."""
        return np.concatenate(blocks)

    def nearest(self, queries: Any, count: int) -> Nearest:
        """Return an exact search."""
        return NearestRows(queries, count)

    def require_comparable(self, opened: VectorFile, shape: tuple[int, ...]) -> None:
        """Raise UserError if a text has several vectors."""
        opened.require_single(np.empty((0, *shape), np.float32))

    def open_index(self, opened: VectorFile, backend: str, watch: Callable[[str], None]) -> Index:
        """Return the bits of the file, or the index of a library."""
        if backend not in LIBRARIES:
            return open_bit_index(opened)
        index = open_index(opened, backend)
        if index.recall is not None:
            watch(f"{backend} finds {index.recall:.1%} of the 10 nearest, measured when it was built.")
        return index


class SparseVectors(KindOfVectors):
    """Weights (V,) of pieces for each text, most of which are 0, compared by dot products (SPLADE)."""

    # scipy's sparse matrices take a tenth of a second to import: other kinds do without.

    def stack(self, blocks: Sequence[Any]) -> Any:
        """Return blocks as one."""
        from osbert.inference.sparse_vectors.nearest import stack_rows

        return stack_rows(blocks)

    def blocks(self, opened: VectorFile) -> Iterator[Any]:
        """Yield the vectors of a file as scipy's csr_array (n, V)."""
        from osbert.inference.sparse_vectors.reading import read_blocks

        return opened.blocks(partial(read_blocks, rows=BLOCK))

    def nearest(self, queries: Any, count: int) -> Nearest:
        """Return an exact search by an inverted index of each block."""
        from osbert.inference.sparse_vectors.nearest import NearestSparseRows

        return NearestSparseRows(queries, count)

    def explain(
        self, queries: Any, chosen: Sequence[Sequence[int]], opened: VectorFile, vocabulary: Sequence[str]
    ) -> list[Mapping[int, Fractions]]:
        """Return the pieces in common."""
        from osbert.inference.sparse_vectors.nearest import divide_scores

        return divide_scores(queries, chosen, self.blocks(opened) if any(chosen) else (), vocabulary)


class ManyVectors(KindOfVectors):
    """Many vectors a text, compared token by token (ColBERT)."""

    backends = ("auto", "exact", *RESIDUAL_BITS)

    def stack(self, blocks: Sequence[Any]) -> Any:
        """Return blocks as one."""
        return MultiVectors.stack(blocks)

    def blocks(self, opened: VectorFile) -> Iterator[Any]:
        """Yield the vectors of a file as MultiVectors."""
        return opened.blocks(read_blocks)

    def nearest(self, queries: Any, count: int) -> Nearest:
        """Return an exact search by MaxSim."""
        return NearestMultiRows(queries, count)

    def open_index(self, opened: VectorFile, backend: str, watch: Callable[[str], None]) -> Index:
        """Return the index of centroids and residuals."""
        return open_residual_index(opened, backend, watch)

    def explain(
        self, queries: Any, chosen: Sequence[Sequence[int]], opened: VectorFile, vocabulary: Sequence[str]
    ) -> list[Mapping[int, Fractions]]:
        """Return the tokens that matched."""
        wanted = sorted({index for indices in chosen for index in indices})
        texts = dict(zip(wanted, read_texts(opened.path, wanted)))
        return [
            {index: name_matches(queries[number : number + 1], texts[index], vocabulary) for index in indices}
            for number, indices in enumerate(chosen)
        ]


KINDS: Mapping[str, KindOfVectors] = {
    "dense": DenseVectors(),
    "tokens": DenseVectors(),
    "sparse": SparseVectors(),
    "multi": ManyVectors(),
}
"""The kinds by `models/forms.py:VectorKind`."""
