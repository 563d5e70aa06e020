"""Exports a run as ONNX with int8 weights and compares both: python examples/export_model.py RUN OUT TEXT..."""

from __future__ import annotations

import sys
from pathlib import Path

import osbert


def size(folder: str | Path) -> float:
    """Return the size of a folder's largest file, the weights, in megabytes."""
    return max(path.stat().st_size for path in Path(folder).iterdir()) / 1e6


def main(run: str, out: str, *texts: str) -> None:
    """Export without a comparison on labelled rows, and print the answers of the run and of its export."""
    folder = osbert.export(run, out=out, int8=True, unchecked=True)
    print(f"{size(run):.2f} MB -> {size(folder):.2f} MB")
    for text, one, other in zip(texts, osbert.load(run).predict(texts), osbert.load(folder).predict(texts)):
        probability = one.probabilities[one.value]
        print(f"{one.value} {probability:.1%} -> {other.value} {other.probabilities[one.value]:.1%}  {text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
