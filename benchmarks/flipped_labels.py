"""How many wrong labels a data map finds: some labels of SST-2 are flipped, and `osbert finetune --data-map` is run.

    OMP_NUM_THREADS=1 python benchmarks/flipped_labels.py --data ../shared/data --model MINILM --out build/flipped \
        [--rows 4000] [--flipped 0.02] [--seeds 0 1 2] [--epochs 3] [--learning-rate 3e-5]

Precision is the share of flipped rows among as many rows of the lowest confidence as were flipped; beside it stand that
of drawing rows, the flipped rows among those that are listed as never right, and what the probability after the last
epoch alone would find.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import numpy as np

import osbert


def write_rows(source: Path, path: Path, *, rows: int, flipped: float, seed: int) -> set[int]:
    """Write some rows of SST-2's training file, and return the lines of those whose labels were flipped."""
    with source.open(encoding="utf-8", newline="") as stream:
        every = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    rng = np.random.default_rng(seed)
    drawn = [every[place] for place in rng.choice(len(every), rows, replace=False).tolist()]
    wrong = {*rng.choice(rows, round(rows * flipped), replace=False).tolist()}
    lines = [f"{row['sentence'].strip()}\t{int(row['label']) ^ (place in wrong)}" for place, row in enumerate(drawn)]
    path.write_text("\n".join(["sentence\tlabel", *lines]) + "\n", encoding="utf-8")
    return {place + 2 for place in wrong}


def main() -> None:
    """Fine-tune on flipped labels for each seed, and print what was found."""
    parser = argparse.ArgumentParser()
    for name in ("data", "model", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--flipped", type=float, default=0.02)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args()
    for seed in given.seeds:
        folder = given.out / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        sst2 = given.data / "glue" / "SST-2"
        wrong = write_rows(sst2 / "train.tsv", folder / "train.tsv", rows=given.rows, flipped=given.flipped, seed=seed)
        run = osbert.finetune(
            "classify", model=given.model, data=folder / "train.tsv", dev=str(sst2 / "dev.tsv"), out=folder / "run",
            data_map=True, seed=seed, epochs=given.epochs, learning_rate=given.learning_rate, watch=print,
        )  # fmt: skip
        with (run.folder / "data_map.csv").open(encoding="utf-8", newline="") as stream:
            found = list(csv.DictReader(stream))
        lines = [int(row["line"]) in wrong for row in found]
        never = [hit for hit, row in zip(lines, found, strict=True) if float(row["correctness"]) == 0]
        last = max(name for name in found[0] if name.startswith("score "))
        by_last = sorted(range(len(found)), key=lambda place: float(found[place][last]))
        figures = {
            "seed": seed,
            "rows": len(found),
            "flipped": len(wrong),
            "precision": sum(lines[: len(wrong)]) / len(wrong),
            "precision of the first half": sum(lines[: len(wrong) // 2]) / (len(wrong) // 2),
            "precision by the last epoch": sum(lines[place] for place in by_last[: len(wrong)]) / len(wrong),
            "drawn at random": given.flipped,
            "never right": len(never),
            "flipped among them": sum(never),
            "accuracy": run.metrics["accuracy"],
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
