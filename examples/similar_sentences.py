"""Finds the sentences that a model holds to be most alike: python examples/similar_sentences.py MODEL FILE."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import osbert


def main(model: str, file: str) -> None:
    """Print the pairs of lines of a file with the highest cosine similarity."""
    sentences = [line for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    vectors = osbert.load(model).embed(sentences, normalize=True)  # (n, D), each of length 1
    alike = np.triu(vectors @ vectors.T, k=1)  # (n, n), each pair once
    for place in np.argsort(-alike, axis=None)[:10]:
        first, second = np.unravel_index(place, alike.shape)
        if first < second:
            print(f"{alike[first, second]:.3f}  {sentences[first]}  |  {sentences[second]}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
