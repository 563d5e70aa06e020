"""Search and near duplicates among vectors: osbert beside sentence-transformers' util functions, and faiss.

    python benchmarks/vector_search.py [--rows 5000,1000000] [--queries 100] [--rounds 3] [--duplicates 5000]

The vectors are random, around centres, at length 1, float32; one in ten repeats another with a little noise. Queries
are rows with noise. Every side takes a file of vectors and is a process of its own, whose greatest memory is printed:

    osbert            NearestRows over the blocks of the file, a memory map
    osbert faiss      the index of `osbert search --backend faiss` (extra faiss), built before; the part of the 10
                      nearest that it finds
    semantic_search   sentence_transformers.util, on a tensor of all vectors

and for duplicates, at a cosine of 0.9:

    osbert            Duplicates: each row with the kept one that stands for it
    paraphrase_mining paraphrase_mining_embeddings: all pairs of the 100 nearest of each row
    communities       community_detection, at least 2 rows

osbert's sides read a memory map as they work; the tensor is filled before. In each round every side works once, and
another one goes first. Ratios are of one round, and their median is printed: above 1 osbert is the faster. Sides whose
library is not installed are left out.
sentence-transformers: pip install --no-deps sentence-transformers, into an environment that has transformers.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

SEARCHES = {"osbert": "osbert", "osbert faiss": "faiss", "semantic_search": "sentence_transformers"}
DUPLICATES = {
    "osbert": "osbert",
    "paraphrase_mining": "sentence_transformers",
    "communities": "sentence_transformers",
}
LEAST = 0.9
TOP = 10
BLOCK = 2**13
WORK: Callable[[], Any]
"""What the process of a side does in a round."""


def write_vectors(path: Path, rows: int, width: int) -> None:
    """Write unit vectors around a centre for every 50 rows; every tenth repeats the one before it."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((max(rows // 50, 1), width), dtype=np.float32)
    file = np.lib.format.open_memmap(path, "w+", np.float32, (rows, width))
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        block = centres[rng.integers(len(centres), size=count)] + rng.standard_normal((count, width), dtype=np.float32)
        block[9::10] = block[8::10][: len(block[9::10])] + 0.1 * rng.standard_normal(block[9::10].shape, np.float32)
        file[first : first + count] = block / np.linalg.norm(block, axis=1, keepdims=True)
    file.flush()


def query_vectors(path: Path, count: int) -> np.ndarray:
    """Return rows of the file with noise."""
    rng = np.random.default_rng(1)
    vectors = np.load(path, mmap_mode="r")
    rows = vectors[np.sort(rng.choice(len(vectors), count, replace=False))]
    found: np.ndarray = rows + 0.02 * rng.standard_normal(rows.shape, dtype=np.float32)
    return found


def begin_search(side: str, path: Path, count: int) -> None:
    """Make WORK a search that returns the places (Q, 10)."""
    global WORK
    queries, vectors = query_vectors(path, count), np.load(path, mmap_mode="r")
    if side == "semantic_search":
        import torch
        from sentence_transformers import util

        corpus, wanted = torch.from_numpy(np.array(vectors)), torch.from_numpy(queries)

        def work() -> Any:
            hits = util.semantic_search(wanted, corpus, top_k=TOP)
            return np.array([[hit["corpus_id"] for hit in one] for one in hits])
    elif side == "osbert faiss":
        index = faiss_index(vectors)

        def work() -> Any:
            return np.array([indices for indices, _ in index.find(queries, TOP)])
    else:
        from osbert.inference.vectors.nearest import NearestRows

        def work() -> Any:
            nearest = NearestRows(queries, TOP)
            for first in range(0, len(vectors), BLOCK):
                nearest.compare(np.array(vectors[first : first + BLOCK]))
            return nearest.places

    WORK = work


def faiss_index(vectors: np.ndarray) -> Any:
    """Return the index that osbert builds, and print how long it took."""
    from osbert.inference.vectors.reading import VectorFile
    from osbert_lab.approximate_search import ApproximateIndex, build_lists

    class Memory(VectorFile):
        path, settings, count = Path("vectors"), {"vectors": {}}, len(vectors)

        def _blocks(self) -> Any:
            return (np.array(vectors[first : first + BLOCK]) for first in range(0, len(vectors), BLOCK))

        def _rows(self, places: Any) -> Any: ...

        def _all_rows(self) -> Any: ...

    started = time.perf_counter()
    lists = build_lists(Memory())
    index = ApproximateIndex(backend="faiss", index=lists)
    print(f"  faiss: built in {time.perf_counter() - started:.1f} s", flush=True)
    return index


def begin_duplicates(side: str, path: Path, count: int) -> None:
    """Make WORK a look for duplicates that returns how many were found."""
    global WORK
    vectors = np.load(path, mmap_mode="r")
    if side == "osbert":
        from osbert_lab.duplicates.comparison import Duplicates

        def work() -> Any:
            found = Duplicates(vectors, LEAST)
            found.find()
            return int((found.kept != np.arange(len(vectors))).sum())
    else:
        import torch
        from sentence_transformers import util

        corpus = torch.from_numpy(np.array(vectors))

        def work() -> Any:
            if side == "communities":
                return sum(len(one) - 1 for one in util.community_detection(corpus, LEAST, min_community_size=2))
            pairs = util.paraphrase_mining_embeddings(corpus)
            return len({max(one, other) for score, one, other in pairs if score >= LEAST})

    WORK = work


def timed() -> tuple[float, Any, float]:
    """Return the seconds of one round, what it found, and the greatest memory of the process so far in MB."""
    started = time.perf_counter()
    found = WORK()
    return time.perf_counter() - started, found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare(title: str, sides: dict[str, str], begin: Callable[..., None], path: Path, options: Any) -> None:
    """Print a line for each side: seconds, memory, ratio and what it found."""
    print(f"{title}:", flush=True)
    spawn = multiprocessing.get_context("spawn")
    pools = {
        side: ProcessPoolExecutor(1, mp_context=spawn, initializer=begin, initargs=(side, path, options.queries))
        for side, library in sides.items()
        if importlib.util.find_spec(library)
    }
    seconds: dict[str, list[float]] = {side: [] for side in pools}
    found, memory = {}, {}
    for round_number in range(options.rounds + 1):  # the first warms up
        names = list(pools)
        for side in names[round_number % len(names) :] + names[: round_number % len(names)]:
            taken, found[side], memory[side] = pools[side].submit(timed).result()
            seconds[side] += [taken] if round_number else []
    for pool in pools.values():
        pool.shutdown()
    for side, all_taken in seconds.items():
        ratio = statistics.median(other / own for other, own in zip(all_taken, seconds["osbert"], strict=True))
        mine, theirs = found["osbert"], found[side]
        if isinstance(mine, np.ndarray):
            same = np.mean([len({*a} & {*b}) / len(a) for a, b in zip(mine.tolist(), theirs.tolist(), strict=True)])
            said = f"{same:.3f} of osbert's rows"
        else:
            said = f"{theirs:,} duplicates"
        print(
            f"  {side:18s} {statistics.median(all_taken):8.3f} s  {memory[side]:7,.0f} MB  ratio {ratio:6.2f}  {said}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="5000,1000000")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duplicates", default="5000", help="numbers of rows among which duplicates are looked for")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        searched = [int(word) for word in options.rows.split(",") if word]
        looked = [int(word) for word in options.duplicates.split(",") if word]
        for rows in sorted({*searched, *looked}):
            path = Path(folder) / f"{rows}.npy"
            write_vectors(path, rows, options.width)
            if rows in searched:
                compare(f"search, {rows:,} rows", SEARCHES, begin_search, path, options)
            if rows in looked:
                compare(f"duplicates, {rows:,} rows", DUPLICATES, begin_duplicates, path, options)


if __name__ == "__main__":
    main()
