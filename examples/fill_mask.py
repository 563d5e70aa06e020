"""Asks a pretrained encoder what stands at [MASK]: python examples/fill_mask.py RUN "The capital [MASK] a city."."""

from __future__ import annotations

import sys

import osbert


def main(run: str, text: str) -> None:
    """Print the five likeliest pieces for each [MASK] of a text."""
    for fillings in osbert.load(run).fill(text):
        print("  ".join(f"{one.piece} {one.probability:.1%}" for one in fillings))


if __name__ == "__main__":
    main(*sys.argv[1:])
