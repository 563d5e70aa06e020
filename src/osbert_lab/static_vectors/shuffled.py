"""The cells of GloVe's counts in random order, in files, by memory for a part of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from osbert_lab.static_vectors.pair_counts import Cells

CELL = np.dtype([("rows", np.int32), ("columns", np.int32), ("counts", np.float32)])


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
