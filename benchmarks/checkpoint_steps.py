"""What checkpoints cost training: intervals of steps without one, with one that is waited for, and with one behind.

    python benchmarks/checkpoint_steps.py [--size L4H256] [--length 128] [--tokens 4096] [--interval 20] [--rounds 5]
        [--folder DIR] [--device cpu]

An interval is a checkpoint and the steps up to the next. The three ways take turns. Three clocks are read: the wall;
the thread that trains, which is what training pays where a core is free for the writer (with OMP_NUM_THREADS=1 it is
all that training computes); and the whole process, the writer included. "pause" is the call that writes, or only
copies, the state. Figures are medians over the rounds; "more" compares with the interval without a checkpoint of the
same round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from osbert.data.batch import micro_batches
from osbert.training.optimizer import OptimizerSettings
from osbert.training.progress import Progress
from osbert.training.settings import TrainingSettings
from osbert.training.trainer import Trainer
from pretraining_speed import Case, Endless, make_learner

CLOCKS = {"wall": time.perf_counter, "trainer": time.thread_time, "process": time.process_time}
WAYS = ("none", "foreground", "background")


class Way:
    """A run whose checkpoints are written in one way. `interval` steps are taken at a time."""

    def __init__(self, case: Case, way: str, folder: Path, interval: int) -> None:
        """Take the first interval, in which memory is allocated and the first copy made."""
        torch.manual_seed(0)
        settings: dict[str, Any] = {"checkpoint_every": 0} if way == "none" else {"checkpoint_writing": way}
        if way != "none":
            settings["checkpoint_every"] = interval
        training = TrainingSettings(steps=10**9, device=case.device, evaluate_every=0, keep=1, **settings)
        loader = Endless([micro_batches(examples, 0) for examples in case.steps()])
        self.trainer = Trainer(make_learner(case.architecture.build()), loader, OptimizerSettings(), training, folder)
        self.interval = interval
        self.pauses: list[float] = []
        save = self.trainer.save

        def timed(*, behind: bool = False) -> bool:
            begin = time.perf_counter()
            written = save(behind=behind)
            self.pauses.append(time.perf_counter() - begin)
            return written

        self.trainer.save = timed  # type: ignore[method-assign]
        self.running: Iterator[Progress] = self.trainer.run()
        self.take()
        self.take()

    def take(self) -> dict[str, float]:
        """Return the seconds of an interval by each clock. It begins with a checkpoint, except in the first one."""
        begin = {name: clock() for name, clock in CLOCKS.items()}
        for _ in range(self.interval):
            next(self.running)
        return {name: clock() - begin[name] for name, clock in CLOCKS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="L4H256")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens a step")
    parser.add_argument("--interval", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    case = Case(size=chosen.size, length=chosen.length, device=chosen.device, tokens=chosen.tokens)
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        ways = {way: Way(case, way, Path(name) / way, chosen.interval) for way in WAYS}
        rounds = [{way: one.take() for way, one in ways.items()} for _ in range(chosen.rounds)]
        parameters = sum(weight.numel() for weight in ways["none"].trainer.learner.parameters())
        print(
            f"{parameters / 1e6:.1f}M parameters, {12 * parameters / 1e6:.0f} MB a checkpoint, {chosen.rounds} rounds"
        )
        for way, one in ways.items():
            show(way, one, rounds)
            one.running.close()  # type: ignore[attr-defined]


def show(way: str, one: Way, rounds: list[dict[str, dict[str, float]]]) -> None:
    """Print the medians of one way."""
    for clock in CLOCKS:
        step = statistics.median(found[way][clock] for found in rounds) / one.interval
        more = statistics.median(found[way][clock] / found["none"][clock] - 1 for found in rounds)
        pause = f", pause {statistics.median(one.pauses[1:]):.3f} s" if one.pauses and clock == "wall" else ""
        print(f"{way:10} {clock:8} {step:.3f} s a step, {100 * more:+.1f}%{pause}")


if __name__ == "__main__":
    main()
