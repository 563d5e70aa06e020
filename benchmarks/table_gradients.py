"""A training step's work on a table of pieces: with gradients of the rows that were read, and of the whole table.

    python benchmarks/table_gradients.py [--width 384] [--tokens 350] [--pieces 3000] [--tables 30522,250037]

Milliseconds of lookup, gradient, its norm, clipping and AdamW, the median of 20 steps of each side in turns. The tokens
are drawn from the first --pieces rows, about as many as 1,000 short texts have. A step before has read all of these, as
after an epoch: AdamW moves each row that has ever been read.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

from osbert.training.adamw import give_row_gradients
from osbert.training.optimizer import OptimizerSettings, limit

STEPS = 20


class Side:
    """A table of one kind, with a small layer on it and their optimiser."""

    def __init__(self, rows: int, width: int, *, sparse: bool) -> None:
        """Make them."""
        self.model = nn.Sequential(nn.Embedding(rows, width), nn.Linear(width, 2))
        if sparse:
            give_row_gradients(self.model)
        self.optimizer = OptimizerSettings().build(self.model)
        self.seconds: list[float] = []

    def step(self, ids: torch.Tensor) -> None:
        """Take a step on tokens (N,), and keep its time."""
        started = time.perf_counter()
        self.model(ids).square().sum().backward()
        limit([*self.model.parameters()], 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seconds.append(time.perf_counter() - started)


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
        every = torch.arange(min(chosen.pieces, rows))
        for ids in [every, *(torch.randint(len(every), (chosen.tokens,)) for _ in range(STEPS))]:
            for side in sides.values():
                side.step(ids)
        times = [f"{name} {1000 * statistics.median(side.seconds[1:]):.1f} ms" for name, side in sides.items()]
        print(f"{rows:,} rows: {', '.join(times)}")


if __name__ == "__main__":
    main()
