"""Wrong labels and a regression on frozen vectors: what is regained by leaving rows out (`--robust`), or a loss.

    OMP_NUM_THREADS=1 python benchmarks/flipped_vectors.py --data ../shared/data [--model MODEL]
        [--sets sst2,genres,banking77] [--rows 1000] [--flipped 0.2] [--seeds 0,1,2] [--dev 872]

The seed draws the rows and those whose label becomes another one, each as likely. "left out": without the rows whose
labels are doubted (osbert_lab/doubted_labels). "own loss": the generalised cross-entropy with q = 0.7 on all rows. The
score is the accuracy on development rows, whose labels are as they were; no choice sees them.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from finetune import listed
from osbert.interop.hub import minilm
from osbert_lab.doubted_labels import cross_fitting
from osbert_lab.study.folds import deal_folds
from osbert_lab.study.summaries import summarise
from small_data import SETS, Measured, numbers, records, vectors

SIDES = ("right labels", "right labels, left out", "flipped", "flipped, own loss", "flipped, left out")


def doubted(features: Tensor, labels: Tensor, count: int) -> Tensor:
    """Return which rows (n,) are left out."""
    own = labels.numpy()
    probabilities = cross_fitting.cross_fit(features, own, count, deal_folds(own.tolist(), cross_fitting.FOLDS))
    guesses = cross_fitting.confident_labels(probabilities, own)
    return torch.from_numpy(cross_fitting.keep_each_label(guesses != own, probabilities, own))


def generalised(features: Tensor, labels: Tensor, count: int, q: float = 0.7) -> tuple[Tensor, Tensor]:
    """Return the weights and biases of a regression by the generalised cross-entropy."""
    weight, bias = torch.zeros(features.shape[1], count, requires_grad=True), torch.zeros(count, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=cross_fitting.ITERATIONS, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        losses = torch.nn.functional.cross_entropy(features @ weight + bias, labels, reduction="none")
        loss = -(torch.expm1(-q * losses) / q).sum() + cross_fitting.PENALTY / 2 * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(objective)
    return weight.detach(), bias.detach()


def scores(wanted: Measured, data: Path, model: Path, most: int) -> dict[str, float]:
    """Return the accuracy of each side in points."""
    task, splits = records(dataclasses.replace(wanted, flipped=0.0), data, most)
    flipped = records(wanted, data, most)[1]["train"]
    names = list(task.classes)
    train, dev = (
        torch.from_numpy(vectors(model, [row.texts[0] for row in splits[split]])).float() for split in ("train", "dev")
    )
    center = train.mean(dim=0)
    scale = (train - center).norm(dim=1).mean()
    train, dev = (train - center) / scale, (dev - center) / scale
    expected = torch.tensor([names.index(row.label) if row.label in names else -1 for row in splits["dev"]])
    found = {}
    for name, rows in (("right labels", splits["train"]), ("flipped", flipped)):
        labels = torch.tensor([names.index(row.label) for row in rows])
        every, keep = torch.ones(len(labels), dtype=torch.bool), ~doubted(train, labels, len(names))
        for side, kept in ((name, every), (f"{name}, left out", keep)):
            weight, bias = cross_fitting.fit_regression(train[kept], labels[kept], len(names), cross_fitting.PENALTY)
            found[side] = 100 * float(((dev @ weight + bias).argmax(dim=1) == expected).float().mean())
        if name == "flipped":
            weight, bias = generalised(train, labels, len(names))
            found["flipped, own loss"] = 100 * float(((dev @ weight + bias).argmax(dim=1) == expected).float().mean())
    return found


def main() -> None:
    """Print a row for each set: the mean of each side over the seeds, with its interval from three seeds on."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", type=Path, default=minilm())
    parser.add_argument("--sets", default="sst2,genres,banking77")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--flipped", type=float, default=0.2)
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    parser.add_argument("--dev", type=int, default=872)
    given = parser.parse_args()
    print(f"| set | rows | {' | '.join(SIDES)} |")
    for name in listed(given.sets, list(SETS)):
        wanted = Measured(model="", set=name, rows=given.rows, side="", seed=0, apart=True, flipped=given.flipped)
        runs = [
            scores(dataclasses.replace(wanted, seed=seed), given.data, given.model, given.dev) for seed in given.seeds
        ]
        cells = []
        for side in SIDES:
            found = summarise([run[side] for run in runs])
            half = f" ± {np.ptp(found.interval) / 2:.1f}" if len(runs) > 2 else ""
            cells.append(f"{found.mean:.1f}{half} ({', '.join(f'{run[side]:.1f}' for run in runs)})")
        print(f"| {name} | {given.rows} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
