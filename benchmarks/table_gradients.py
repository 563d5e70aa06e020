"""A training step's work on a table of pieces: with gradients of the rows that were read, and of the whole table.

    python benchmarks/table_gradients.py [--width 384] [--tokens 350] [--pieces 3000] [--tables 30522,250037]

Milliseconds of lookup, gradient, its norm, clipping and AdamW, the best of 20 steps of each side in turns. The tokens
are drawn from the first --pieces rows, about as many as 1,000 short texts have.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from torch import nn

from osbert.training.optimizer import OptimizerSettings, limit

STEPS = 20


class Side:
    """A table of one kind, with a small layer on it and their optimiser."""

    def __init__(self, rows: int, width: int, *, sparse: bool) -> None:
        """Make them."""
        self.model = nn.Sequential(nn.Embedding(rows, width, sparse=sparse), nn.Linear(width, 2))
        self.optimizer = OptimizerSettings().build(self.model)
        self.best = math.inf

    def step(self, ids: torch.Tensor) -> None:
        """Take a step on tokens (N,), and keep the best time."""
        started = time.perf_counter()
        self.model(ids).square().sum().backward()
        limit([*self.model.parameters()], 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.best = min(self.best, time.perf_counter() - started)


def main() -> None:
    """Print a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--tokens", type=int, default=350, help="of a step")
    parser.add_argument("--pieces", type=int, default=3000, help="that occur")
    parser.add_argument("--tables", default="30522,250037", help="numbers of rows, with commas between")
    chosen = parser.parse_args()
    for rows in map(int, chosen.tables.split(",")):
        sides = {name: Side(rows, chosen.width, sparse=sparse) for name, sparse in (("whole", False), ("rows", True))}
        for _ in range(STEPS):
            ids = torch.randint(min(chosen.pieces, rows), (chosen.tokens,))
            for side in sides.values():
                side.step(ids)
        print(f"{rows:,} rows: {', '.join(f'{name} {1000 * side.best:.1f} ms' for name, side in sides.items())}")


if __name__ == "__main__":
    main()
