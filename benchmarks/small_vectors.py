"""Int8 vectors and bits: the neighbours of float32 that a search still finds, its bytes and its time.

    python benchmarks/small_vectors.py REVIEWS.jsonl.xz [--rows 100000] [--model minilm] [--work small-vectors]

REVIEWS: JSON lines with `text`. The vectors are of the first different sentences of 4 to 40 words, by `osbert embed`,
and stay in the folder --work: a second call measures again. Recall is measured as `osbert embed --dtype` does when it
writes a file, here for several numbers of candidates. Times are of the processor, for one query at a time, of vectors
in the page cache; medians over the queries.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import osbert
from osbert.inference.vectors import bits
from osbert.inference.vectors.bits import BitIndex
from osbert.inference.vectors.files import Column
from osbert.inference.vectors.nearest import NearestRows
from osbert.inference.vectors.quantizing import add_bits, measure_small, quantize_column

TOP, QUERIES = 10, 50


def sentences(reviews: Path) -> Iterator[str]:
    """Yield the different sentences of 4 to 40 words."""
    seen = set()
    with lzma.open(reviews, "rt", encoding="utf-8") as lines:
        for line in lines:
            for sentence in re.split(r"(?<=[.!?])\s+", " ".join(json.loads(line)["text"].split())):
                if 4 <= len(sentence.split()) <= 40 and sentence not in seen:
                    seen.add(sentence)
                    yield sentence


def embed(reviews: Path, rows: int, model: str, vectors: Path) -> None:
    """Write the vectors of the first sentences."""
    texts = vectors.with_name("sentences.txt")
    chosen = (sentence for sentence, _ in zip(sentences(reviews), range(rows)))
    texts.write_text("".join(f"{sentence}\n" for sentence in chosen))
    osbert.embed(model, texts, out=vectors)


def milliseconds(find: Callable[[np.ndarray], object], queries: np.ndarray) -> float:
    """Return the median time of the processor for one query."""
    taken = []
    for query in queries:
        started = time.process_time()
        find(query[None])
        taken.append(time.process_time() - started)
    return 1000 * statistics.median(taken)


def compare_all(column: Column) -> Callable[[np.ndarray], object]:
    """Return a search that compares every vector of a column."""
    vectors = np.memmap(column.path, column.dtype, "r", shape=column.shape)

    def find(query: np.ndarray) -> object:
        nearest = NearestRows(query, TOP)
        for first in range(0, len(vectors), 2**13):
            nearest.compare(np.asarray(vectors[first : first + 2**13], np.float32))
        return nearest.places

    return find


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reviews", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--work", type=Path, default=Path("small-vectors"))
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    file = options.work / "vectors.npy"
    if not file.exists():
        embed(options.reviews, options.rows, options.model, file)
    vectors = np.load(file)
    vectors.tofile(options.work / "float32.bin")
    exact = Column(path=options.work / "float32.bin", dtype="<f4", shape=vectors.shape)
    quantized = quantize_column(exact, options.work / "int8.bin")
    packed = add_bits(quantized, options.work)["bits"]
    queries = vectors[np.linspace(0, len(vectors) - 1, QUERIES).astype(int)]
    print(f"{len(vectors):,} vectors of {vectors.shape[1]}")
    for name, column, recall in (("float32", exact, 1.0), ("int8", quantized, measure_small(exact, quantized))):
        size = column.path.stat().st_size / 1e6
        print(
            f"{name:24s} {size:6.1f} MB  recall@10 {recall:.4f}  {milliseconds(compare_all(column), queries):6.2f} ms"
        )
    mapped = np.memmap(quantized.path, quantized.dtype, "r", shape=quantized.shape)
    index = BitIndex(np.fromfile(packed.path, np.uint8).reshape(packed.shape), vectors.shape[1], mapped.__getitem__)
    bits.CANDIDATES_PER_RESULT = 1
    for bits.CANDIDATES in (11, 50, 100, 200):
        recall, taken = (
            measure_small(exact, quantized, packed),
            milliseconds(lambda query: index.find(query, TOP), queries),
        )
        size = packed.path.stat().st_size / 1e6
        print(
            f"bits, {bits.CANDIDATES:3d} vectors read   {size:6.1f} MB  recall@10 {recall:.4f}  {taken:6.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
