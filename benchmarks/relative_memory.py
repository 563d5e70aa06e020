"""Attention with biases of distances in blocks of queries, beside all queries at once: memory and processor time.

    OMP_NUM_THREADS=1 python benchmarks/relative_memory.py [--lengths 2048,4096] [--rounds 1] [--sides blocks]

A layer of BERT BASE's shape with fresh weights encodes one text of random pieces, in fp32 and without gradients:
DeBERTa's disentangled attention, XLNet's and Transformer-XL's distances, T5's biases. Each measurement is a process of
its own; in each round "blocks" and "at once" take turns. Printed: the peak of resident memory while encoding, above
that of the model, the median seconds of processor time, and the largest difference of the states. At 8,192 tokens all
queries at once take 17 GB for XLNet. benchmarks/long_texts.py measures the same kinds beside transformers.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch

from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.models.architecture import Architecture
from osbert.models.transformer import layout
from osbert.training.probe import peak_memory, reset_memory, resident_memory
from osbert.training.processor import Processor

KINDS: dict[str, dict[str, Any]] = {
    "DeBERTa": {"positions": "disentangled", "buckets": 256, "farthest": 512},
    "XLNet": {"positions": "distances", "farthest": 100_000, "segment_scores": True, "segments": 0},
    "Transformer-XL": {"positions": "distances", "farthest": 100_000, "segments": 0, "direction": "left_to_right"},
    "T5": {"positions": "none", "distance_scores": 32},
}

SIDES = ("blocks", "at once")
CPU = Processor(device=torch.device("cpu"), precision="fp32")


def encode(kind: str, side: str, length: int, layers: int) -> tuple[float, float, np.ndarray]:
    """Return the MiB that an encoding took above the model's, its seconds of processor time, and the states (T, D)."""
    torch.manual_seed(0)
    sizes = {"layers": layers, "heads": 12, "width": 768, "vocabulary": 1_000, "dropout": 0.0, "attention_dropout": 0.0}
    backbone = Architecture(**(sizes | KINDS[kind])).build().eval()
    backbone.initialise()
    if side != SIDES[0]:
        layout.LONG = length
    ids, none = np.random.default_rng(0).integers(5, 1_000, size=length), np.zeros(length, np.bool_)

    def batch(tokens: int) -> Any:
        segments = np.arange(tokens) > tokens // 2
        own = Example(ids=ids[:tokens], segments=segments.astype(np.int8), words=none[:tokens], special=none[:tokens])
        return collate([own])

    with torch.inference_mode():
        backbone(batch(64))
        reset_memory(CPU)
        before, started = resident_memory(), time.process_time()
        states = backbone(batch(length)).hidden
        seconds = time.process_time() - started
    return (peak_memory(CPU) - before) / 2**20, seconds, states.numpy()


def compare(kind: str, length: int, layers: int, rounds: int, sides: list[str]) -> str:
    """Measure the sides in turns and return the row of the table."""
    found: dict[str, list[tuple[float, float, np.ndarray]]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found[side].append(pool.submit(encode, kind, side, length, layers).result())
    cells = []
    for measured in found.values():
        memory, seconds, _ = zip(*measured, strict=True)
        cells.append(f"{statistics.median(memory):,.0f} MiB, {statistics.median(seconds):.2f} s")
    first, last = (found[side][0][2] for side in (sides[0], sides[-1]))
    apart = np.abs(first - last).max()
    return f"| {kind} | {length:,} | {' | '.join(cells)} | {apart:.1e} |"


def main() -> None:
    """Print a table of all kinds and lengths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="2048,4096")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--sides", default=",".join(SIDES))
    given = parser.parse_args()
    sides = given.sides.split(",")
    print(f"| attention | tokens | {' | '.join(sides)} | largest difference |\n|---|---|{'---|' * len(sides)}---|")
    for kind in given.kinds.split(","):
        for length in map(int, given.lengths.split(",")):
            print(compare(kind, length, given.layers, given.rounds, sides), flush=True)


if __name__ == "__main__":
    main()
