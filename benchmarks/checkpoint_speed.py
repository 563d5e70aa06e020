"""How long a checkpoint of a given size takes to write, to copy (what training waits for if it is written in the
background), to check and to read: seconds a gigabyte, on this disk.

python benchmarks/checkpoint_speed.py [--gigabytes 1.3] [--folder DIR] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from osbert.training.checkpoint import Checkpoint, Checkpoints, CheckpointWriter

Seconds = tuple[float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.3, help="1.3: bert-base with the moments of Adam")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rows = int(chosen.gigabytes * 1e9 / 4 / 1024 / 30)
    weights = {f"block.{number}": torch.randn(rows, 1024) for number in range(10)}
    moments = {f"moment.{number}": torch.randn(rows, 1024) for number in range(20)}
    seconds: dict[str, list[Seconds]] = {"write": [], "copy": [], "check": [], "read": []}
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        checkpoints = Checkpoints(Path(name), keep=1)
        writer = CheckpointWriter(checkpoints, [])
        for step in range(chosen.rounds):
            made = Checkpoint(step=step, weights=weights, optimizer=moments, state={})
            seconds["write"].append(timed(lambda made=made: checkpoints.save(made)))
            seconds["copy"].append(timed(lambda made=made: writer.begin(made)))
            writer.settle()
            seconds["check"].append(timed(checkpoints.newest))
            seconds["read"].append(timed(lambda step=step: copied(checkpoints.read(step))))
    for what, found in seconds.items():
        wall, processor = (statistics.median(one) / chosen.gigabytes for one in zip(*found, strict=True))
        print(f"{what:6} {wall:.2f} s/GB, {processor:.2f} of processor time (medians of {chosen.rounds} rounds)")


def copied(checkpoint: Checkpoint) -> None:
    """Copy all tensors, as a trainer does: a file that is mapped into memory has not been read yet."""
    for tensor in (*checkpoint.weights.values(), *checkpoint.optimizer.values()):
        tensor.clone()


def timed(action: Callable[[], object]) -> Seconds:
    """Return the seconds by the wall and of the processor, over all threads."""
    begin = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


if __name__ == "__main__":
    main()
