"""Finds the lines of a file that are nearest to queries: python examples/search_texts.py MODEL FILE VECTORS QUERY..."""

from __future__ import annotations

import sys
from pathlib import Path

import osbert


def main(model: str, file: str, vectors: str, *queries: str) -> None:
    """Embed the file once, into VECTORS (.npy), and print the three nearest lines of each query."""
    if not Path(vectors).exists():
        print(osbert.embed(model, file, out=vectors).shape)
    for query, found in zip(queries, osbert.search(vectors, queries, top=3)):
        print(query)
        for near in found.nearest:
            print(f"  {near.cosine:.3f}  {near.texts[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
