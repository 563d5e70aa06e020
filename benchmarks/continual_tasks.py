"""What curricula of objectives forget: the masked loss after each, at equal steps: continual_tasks.py CORPUS OUT

The recipe ernie-small with 2 layers of 64: masking, token-document relation, reordering and distance, all at once, one
by one, or continually (Sun et al. 2020, section 3.1); and masking alone with as many steps in all. Runs go on where
they were stopped.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import osbert

SETTINGS = {
    "layers": 2,
    "width": 64,
    "heads": 2,
    "batch": 16,
    "held_out": 0.02,
    "warmup": 0.05,
    "device": "cpu",
    "pool": 2**16,
}
TASKS = ("mlm", "document_words", "reorder", "distance")
CURRICULA = ("at_once", "one_by_one", "continual")


def main() -> None:
    """Train by every curriculum with every seed, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=600, help="steps of a run, of all tasks together")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    for seed in range(given.seeds):
        for name in (*CURRICULA, "mlm alone"):
            run(given, name, seed)
    table(given)


def run(given: argparse.Namespace, name: str, seed: int) -> None:
    """Pretrain one encoder."""
    own: dict[str, Any] = (
        {"curriculum": name} if name in CURRICULA else {"objectives": ("mlm",), "curriculum": "together"}
    )
    every = given.steps // 4  # the ends of the stages of one_by_one
    osbert.pretrain(
        "ernie-small",
        corpus=given.corpus,
        out=given.out / f"{name.replace(' ', '-')}-{seed}",
        steps=given.steps,
        evaluate_every=every,
        checkpoint_every=every,
        training_seed=seed,
        data_seed=seed,
        **SETTINGS,
        **own,
    )


def losses(folder: Path) -> list[dict[str, float]]:
    """Return the held-out lines of a run, in the order of their steps."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "held_out.mlm.loss" in line]


def table(given: argparse.Namespace) -> None:
    """Print each curriculum's held-out figures at the end: means over the seeds, and the range of the masked loss."""
    print(
        "| curriculum | masked loss at the end | its lowest |", " | ".join(f"{task}, accuracy" for task in TASKS), "|"
    )
    for name in (*CURRICULA, "mlm alone"):
        runs = [losses(given.out / f"{name.replace(' ', '-')}-{seed}") for seed in range(given.seeds)]
        last = [lines[-1] for lines in runs]
        ends = [line["held_out.mlm.loss"] for line in last]
        low = sum(min(line["held_out.mlm.loss"] for line in lines) for lines in runs) / len(runs)
        figures = [[line.get(f"held_out.{task}.accuracy") for line in last] for task in TASKS]
        cells = [f"{sum(each) / len(each):.1%}" if None not in each else "" for each in figures]  # type: ignore[arg-type]
        mean = f"{sum(ends) / len(ends):.3f} ({min(ends):.3f} to {max(ends):.3f})"
        print(f"| {name} | {mean} | {low:.3f} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
