"""Counts of co-occurring words for GloVe: in memory, in sorted files beyond a number of pairs; then in random order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MOST = 1 << 22
"""Distinct pairs in memory, 16 bytes each; with their sorting about 0.5 GB."""
PART = "pairs-part-"
"""Names of the sorted files begin so."""
PAIR = np.dtype([("key", np.int64), ("value", np.float64)])
CELL = np.dtype([("rows", np.int32), ("columns", np.int32), ("counts", np.float32)])

Cells = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]
"""Nonzero cells of the table of counts: rows, columns and counts, each (n,)."""
Sums = tuple[NDArray[np.int64], NDArray[np.float64]]
"""The number low * words + high of each pair, increasing, and the sum of its counts."""


class PairCounts:
    """Counts co-occurring words: each pair at a distance d adds 1 / d, in both orders.

    When there are more than `most` distinct pairs in memory, they are written to a sorted file in `folder`, and
    counting goes on from nothing. `blocks` merges the files. Without a folder all pairs stay in memory.

    >>> counts = PairCounts(words=3, window=2)
    >>> counts.add(np.array([0, 1, 2, 1]), np.array([0, 0, 0, 0]))
    >>> [array.tolist() for block in counts.blocks() for array in block]
    [[0, 0, 1, 1, 1, 2, 2], [1, 2, 1, 2, 0, 0, 1], [1.0, 0.5, 1.0, 2.0, 1.0, 0.5, 2.0]]
    """

    def __init__(self, *, words: int, window: int, folder: Path | None = None, most: int = MOST) -> None:
        """Count pairs of `words` words that are at most `window` words apart. Old files in the folder are deleted."""
        self.words = words
        self.window = window
        self.folder = folder
        self.most = most
        self._sums: Sums = (np.zeros(0, np.int64), np.zeros(0))
        self._waiting: list[Sums] = []
        self._files: list[Path] = []
        for path in folder.glob(f"{PART}*") if folder else ():
            path.unlink()

    def add(self, ids: NDArray[np.integer], texts: NDArray[np.integer]) -> None:
        """Count the pairs in words `ids` (n,); `texts` (n,) numbers their texts, and no pair spans two texts."""
        keys, values = [], []
        ids = ids.astype(np.int64)
        for distance in range(1, min(self.window, len(ids) - 1) + 1):
            # Pairs at one distance: the array against itself, shifted.
            together = texts[distance:] == texts[:-distance]
            first, second = ids[:-distance][together], ids[distance:][together]
            # One number per unordered pair, so that a sort groups equal pairs.
            keys.append(np.minimum(first, second) * self.words + np.maximum(first, second))
            values.append(np.full(len(first), 1 / distance))
        if keys:
            self._waiting.append(_sum_equal_keys(np.concatenate(keys), np.concatenate(values)))
        # Merged when the waiting pairs outgrow the table: amortised cost, bounded memory.
        if sum(len(keys) for keys, _ in self._waiting) > max(min(self.most, MOST), len(self._sums[0])):
            self._merge()

    @property
    def cells(self) -> int:
        """The most cells that `blocks` can yield: pairs of several files are counted several times."""
        return 2 * sum(len(keys) for keys, _ in self._parts())

    def blocks(self) -> Iterator[Cells]:
        """Yield the counts of all pairs in blocks, each pair once; equal words count twice, as in GloVe's code."""
        for keys, values in merge_counts(self._parts(), self.most):
            low, high = (keys // self.words).astype(np.int32), (keys % self.words).astype(np.int32)
            # The table is symmetric: cells off the diagonal appear as (low, high) and (high, low).
            counts = (values * np.where(low == high, 2, 1)).astype(np.float32)
            other = low != high
            rows, columns = np.concatenate([low, high[other]]), np.concatenate([high, low[other]])
            yield rows, columns, np.concatenate([counts, counts[other]])

    def delete(self) -> None:
        """Delete the sorted files."""
        while self._files:
            self._files.pop().unlink()

    def _parts(self) -> list[Sums]:
        self._merge()
        files = (np.load(path, mmap_mode="r") for path in self._files)
        return [*((file["key"], file["value"]) for file in files), self._sums]

    def _merge(self) -> None:
        if not self._waiting:
            return
        self._sums = _sum_equal_keys(
            *(np.concatenate(column) for column in zip(self._sums, *self._waiting, strict=True))
        )
        self._waiting = []
        if self.folder and len(self._sums[0]) > self.most:
            path = self.folder / f"{PART}{len(self._files)}.npy"
            pairs = np.empty(len(self._sums[0]), PAIR)
            pairs["key"], pairs["value"] = self._sums
            np.save(path, pairs)
            self._files.append(path)
            self._sums = (np.zeros(0, np.int64), np.zeros(0))


def merge_counts(parts: Sequence[Sums], size: int) -> Iterator[Sums]:
    """Merge sorted parts, about `size` pairs at a time; equal pairs are summed.

    >>> one, other = (np.array([1, 4, 6]), np.ones(3)), (np.array([4, 5]), np.ones(2))
    >>> [(keys.tolist(), values.tolist()) for keys, values in merge_counts([one, other], 4)]
    [([1, 4], [1.0, 2.0]), ([5, 6], [1.0, 1.0])]
    """
    parts = [part for part in parts if len(part[0])]
    offsets, each = [0] * len(parts), max(1, size // max(1, len(parts)))
    while any(offset < len(keys) for offset, (keys, _) in zip(offsets, parts, strict=True)):
        heads = [keys[offset : offset + each] for offset, (keys, _) in zip(offsets, parts, strict=True)]
        # Up to the smallest last key of a head that goes on, every part has shown its pairs.
        going_on = [head[-1] for head, offset, (keys, _) in zip(heads, offsets, parts) if offset + each < len(keys)]
        bound = min(going_on, default=np.iinfo(np.int64).max)
        ends = [offset + int(np.searchsorted(head, bound, "right")) for offset, head in zip(offsets, heads)]
        taken = [[column[offset:end] for column in part] for part, offset, end in zip(parts, offsets, ends)]
        offsets = ends
        yield _sum_equal_keys(*(np.concatenate(column) for column in zip(*taken, strict=True)))


def _sum_equal_keys(keys: NDArray[np.int64], values: NDArray[np.float64]) -> Sums:
    """Return the distinct keys, increasing, and the sum of the values of each."""
    if not len(keys):
        return keys, values
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    # Starts of runs of equal keys; reduceat sums from each start to the next.
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(values, starts)


def write_shuffled(blocks: Iterable[Cells], folder: Path, *, heaps: int, rng: np.random.Generator) -> None:
    """Write cells as pairs-rows.npy, pairs-columns.npy and, last, pairs-counts.npy, all in one random order.

    Each cell is assigned at random to one of `heaps` files, and each file is shuffled in memory: every order is equally
    likely.
    """
    paths = [folder / f"pairs-heap-{number}" for number in range(heaps)]
    for path in folder.glob("pairs-heap-*"):  # of a call that was stopped
        path.unlink()
    total = 0
    for block in blocks:
        cells = np.empty(len(block[0]), CELL)
        for name, column in zip(CELL.names or (), block, strict=True):
            cells[name] = column
        heap = rng.integers(heaps, size=len(cells))
        ordered, bounds = cells[np.argsort(heap, kind="stable")], np.cumsum(np.bincount(heap, minlength=heaps))
        for path, some in zip(paths, np.split(ordered, bounds[:-1]), strict=True):
            # One file is open at a time: there may be more heaps than files that a process may open.
            with path.open("ab") as file:
                some.tofile(file)
        total += len(cells)
    parts = {name: folder / f"pairs-{name}.npy.part" for name in CELL.names or ()}
    with ExitStack() as opened:
        columns = {name: opened.enter_context(path.open("wb")) for name, path in parts.items()}
        for name, file in columns.items():
            form = {"descr": CELL[name].str, "fortran_order": False, "shape": (total,)}
            np.lib.format.write_array_header_1_0(file, form)
        for path in paths:
            cells = rng.permutation(np.fromfile(path, CELL)) if path.exists() else np.empty(0, CELL)
            for name, file in columns.items():
                cells[name].tofile(file)
            path.unlink(missing_ok=True)
    for name, path in parts.items():
        path.replace(folder / f"pairs-{name}.npy")
