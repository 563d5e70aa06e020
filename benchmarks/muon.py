"""Muon's part of a pretraining step, its effect on the loss, and the coefficients of its three iterations.

    python benchmarks/muon.py time [--sizes L4H256,L12H768] [--batches 32,64] [--iterations 5,3] [--steps 2]
    python benchmarks/muon.py loss --corpus CORPUS [--sizes L2H128] [--iterations 5,3] [--steps 300]
    python benchmarks/muon.py curves

`time` takes steps of bert-fast on made-up text, settings in turns, and prints the processor seconds of a step and the
optimiser's part of them. `loss` trains with each number of iterations from the same seed and prints the held-out loss.
`curves` computes the coefficients of osbert.training.muon.CURVES (needs scipy). One thread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from osbert.data.step import Cursor
from osbert.runs.pretrain.first_weights import build_learner
from osbert.runs.pretrain.settings import PretrainPlan, read_plan
from osbert.training.trainer import Trainer
from osbert_lab.planning.benchmark import synthetic_corpus

VOCABULARY, POOL = 30_522, 2**17


def main() -> None:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("time", "loss", "curves"))
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--recipe", default="bert-fast")
    parser.add_argument("--sizes", default="L4H256")
    parser.add_argument("--batches", default="32")
    parser.add_argument("--iterations", default="5,3")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    if options.command == "curves":
        for curve in curves(0.01, 3):
            print(", ".join(f"{number:.4f}" for number in curve))
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        corpus = options.corpus or synthetic_corpus(Path(folder) / "text", vocabulary=VOCABULARY).folder
        cases = [
            (size, int(batch), int(number))
            for size in options.sizes.split(",")
            for batch in options.batches.split(",")
            for number in options.iterations.split(",")
        ]
        if options.command == "time":
            print_times(options.recipe, cases, corpus, steps=options.steps)
        else:
            print_losses(options.recipe, cases, corpus, steps=options.steps)


def plan_of(recipe: str, case: tuple[str, int, int], corpus: Path, *, steps: int) -> PretrainPlan:
    """Return the plan of a size such as L4H256, sequences a step, and iterations of Muon."""
    size, batch, number = case
    layers, width = map(int, size.removeprefix("L").split("H"))
    given: dict[str, Any] = {"layers": layers, "width": width, "heads": max(2, width // 64), "batch": batch}
    given |= {"micro_tokens": 4096, "muon_iterations": number, "steps": steps, "checkpoint_every": 0, "pool": POOL}
    return read_plan(recipe, given, corpus=corpus)


def trainer_of(plan: PretrainPlan) -> Trainer:
    """Return a trainer that writes nothing."""
    settings = plan.settings
    loader = plan.loader(length=settings.data.length)
    return Trainer(build_learner(plan), loader, settings.optimizer, settings.training, Path("none"))


def print_times(recipe: str, cases: list[tuple[str, int, int]], corpus: Path, *, steps: int) -> None:
    """Print the processor seconds of a step and of its optimiser for each case, medians, in turns."""
    print("| size | sequences, tokens a step | iterations | s a step | optimiser | part |\n|---|---|---|---|---|---|")
    running = {case: timed(trainer_of(plan_of(recipe, case, corpus, steps=steps + 2))) for case in cases}
    taken = [{case: next(times) for case, times in running.items()} for _ in range(steps + 1)][1:]  # one to warm up
    for case in cases:
        step, own, tokens = (statistics.median(column) for column in zip(*(one[case] for one in taken)))
        size, batch, number = case
        print(f"| {size} | {batch}, {tokens:,.0f} | {number} | {step:.3f} | {own:.3f} | {own / step:.0%} |")


def timed(trainer: Trainer) -> Iterator[tuple[float, float, float]]:
    """Take steps; yield the processor seconds of each, those of the optimiser, and the step's tokens."""
    own: list[float] = []
    move = trainer.optimizer.step

    def moved(*given: Any) -> Any:
        started = time.process_time()
        move(*given)
        own.append(time.process_time() - started)

    trainer.optimizer.step = moved  # type: ignore[method-assign]
    for step in trainer.loader.steps(Cursor()):
        started = time.process_time()
        trainer._advance(step, 0.0)
        yield time.process_time() - started, own[-1], sum(batch.size for batch in step.batches)


def print_losses(recipe: str, cases: list[tuple[str, int, int]], corpus: Path, *, steps: int) -> None:
    """Train each case and print its held-out losses and processor seconds."""
    for case in cases:
        trainer, started = trainer_of(plan_of(recipe, case, corpus, steps=steps)), time.process_time()
        for _ in trainer.run():
            pass
        means = trainer.evaluate(trainer.loader.make_held_out())  # type: ignore[attr-defined]
        losses = ", ".join(f"{name} {mean.loss:.3f}" for name, mean in means.items())
        print(f"{case[0]}, {case[1]} sequences, {case[2]} iterations: {losses}; {time.process_time() - started:.0f} s")


def curves(least: float, count: int) -> list[tuple[float, float, float]]:
    """Return for each iteration the odd polynomial of degree 5 nearest to 1 (largest error) on the values so far.

    The first is for values from `least` to 1, each later one for those to which the one before maps them.
    """
    from scipy.optimize import linprog

    low, high, found = least, 1.0, []
    for _ in range(count):
        x = np.concatenate([np.linspace(low, high, 1500), np.geomspace(low, high, 1500)])
        powers, ones = np.stack([x, x**3, x**5], axis=1), np.ones(len(x))
        # Minimise e such that |a x + b x^3 + c x^5 - 1| <= e at all points.
        above, below = np.column_stack([powers, -ones]), np.column_stack([-powers, -ones])
        bounds = [(None, None)] * 3 + [(0, None)]
        best = linprog([0, 0, 0, 1], np.concatenate([above, below]), np.concatenate([ones, -ones]), bounds=bounds).x
        found.append(tuple(best[:3].tolist()))
        low, high = 1 - best[3], 1 + best[3]
    return found


if __name__ == "__main__":
    main()
