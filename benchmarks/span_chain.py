"""The log-probability of whole spans of pieces: by a permuted model's chain, by independence, and by a masked model's.

Two encoders of one size learn from one corpus for as many steps: objective `permuted`, and `mlm` with as many pieces
masked, in runs. Then spans of 1 to 5 pieces are taken out of held-out text, one of each sequence, and scored:

- chain: a piece is predicted from the text around the span and from the pieces of the span that are revealed before it
- independent: each piece is predicted from the text around the span alone

A masked model has the first by a pass for each piece, in which the pieces before it are shown.

    python benchmarks/span_chain.py CORPUS TEXT --out FOLDER [--steps 1000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from osbert.data.batch import Batch, collate
from osbert.data.example import Example, Target
from osbert.data.pack import Packer
from osbert.interop.folder import Folder, open_folder

LONGEST = 5
COMMON = """
[model]
layers = 2
width = 128
heads = 4
positions = "rotary"
neighbours = 2.0
dropout = 0.0
attention_dropout = 0.0

[data]
batch = 32
length = 64

[optimizer]
learning_rate = 3e-3
warmup = 0.05

[training]
checkpoint_every = 500
evaluate_every = 500
"""
RECIPES = {
    "permuted": 'objectives = ["permuted"]' + COMMON,
    "mlm": 'objectives = ["mlm"]'
    + COMMON
    + '[mlm]\nrate = 0.16667\nmask = 1.0\nrandom = 0.0\nunit = "ngrams"\nngrams = [0.4, 0.3, 0.2, 0.1]\n',
}


def main() -> None:
    """Train what is not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", default="1000")
    parser.add_argument("--spans", type=int, default=600, help="spans of each length")
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    for name, recipe in RECIPES.items():
        path = given.out / f"{name}.toml"
        path.write_text(recipe)
        command = ["pretrain", path, "--corpus", given.corpus, "--out", given.out / name, "--steps", given.steps]
        subprocess.run([sys.executable, "-m", "osbert", *map(str, command)], check=True)
    permuted, masked = (open_folder(given.out / name) for name in RECIPES)
    spans = list(examples(permuted, given.text, given.spans))
    found = {
        "permuted, chain": [queried(permuted, *one, chain=True) for one in spans],
        "permuted, independent": [queried(permuted, *one, chain=False) for one in spans],
        "mlm, chain": [masked_chain(masked, *one) for one in spans],
        "mlm, independent": [hidden(masked, *one) for one in spans],
    }
    (given.out / "scores.json").write_text(json.dumps({"sizes": [len(one[1]) for one in spans], **found}))
    table(found, np.array([len(place) for _, place in spans]))


def examples(folder: Folder, text: Path, count: int) -> Iterator[tuple[Example, np.ndarray]]:
    """Yield sequences of held-out text, each with the places of a span that begins with a word."""
    packer, rng = Packer(tokenizer=folder.tokenizer, length=64), np.random.default_rng(0)
    run = packer.run(text.read_text())
    for number in range(count * LONGEST):
        size = 1 + number % LONGEST
        begin = int(rng.integers(len(run.ids) - 62))
        example = packer.single(run.ids[begin : begin + 62], run.words[begin : begin + 62])
        first = int(rng.choice(np.flatnonzero(example.words[: len(example) - 1 - size])))
        yield example, np.arange(first, first + size)


@torch.no_grad()
def score(folder: Folder, name: str, example: Example) -> float:
    """Return the sum of the log-probabilities of an example's labels."""
    batch: Batch = collate([example])
    head, backbone = folder.heads["mlm"].eval(), folder.backbone.eval()
    target = batch.targets[name]
    scores: Tensor = head.scores(backbone(batch).hidden[target.index]).log_softmax(-1)
    return float(scores.gather(-1, target.labels[:, None]).sum())


def queried(folder: Folder, example: Example, places: np.ndarray, *, chain: bool) -> float:
    """Return what the queries of a permuted model give a span, whose pieces are revealed from left to right."""
    n, size = len(example), len(places)
    order = np.zeros(n, np.int64)
    order[places] = 2 * np.arange(1, size + 1)
    columns = {
        "ids": np.append(example.ids, np.full(size, folder.tokenizer.mask)),
        "segments": np.append(example.segments, example.segments[places]),
        "positions": np.append(np.arange(n), places),
        "order": np.append(order, order[places] - 1 if chain else np.ones(size, np.int64)),
        "unseen": np.arange(n + size) >= n,
        "words": np.append(example.words, np.zeros(size, np.bool_)),
        "special": np.append(example.special, np.ones(size, np.bool_)),
    }
    target = Target(labels=example.ids[places], index=np.arange(n, n + size))
    return score(folder, "span", replace(example, **columns, targets={"span": target}))


def hidden(folder: Folder, example: Example, places: np.ndarray, asked: int | None = None) -> float:
    """Return what a masked model gives a span, or the piece at the place `asked`, where `places` are masked."""
    ids = example.ids.copy()
    ids[places] = folder.tokenizer.mask
    index = places if asked is None else np.array([asked])
    target = Target(labels=example.ids[index], index=index)
    return score(folder, "span", replace(example, ids=ids, targets={"span": target}))


def masked_chain(folder: Folder, example: Example, places: np.ndarray) -> float:
    """Return what a masked model gives a span in as many passes as it has pieces."""
    return sum(hidden(folder, example, places[first:], int(places[first])) for first in range(len(places)))


def table(found: dict[str, list[float]], sizes: np.ndarray) -> None:
    """Print the mean of each size, and the differences of chain and independence with 95% bootstrap intervals."""
    rng = np.random.default_rng(0)
    print("pieces".ljust(24), *(f"{size:>16}" for size in range(1, LONGEST + 1)))
    for name, values in found.items():
        means = (np.array(values)[sizes == size].mean() for size in range(1, LONGEST + 1))
        print(name.ljust(24), *(f"{mean:>16.2f}" for mean in means))
    for name in RECIPES:
        gains = np.array(found[f"{name}, chain"]) - np.array(found[f"{name}, independent"])
        cells = []
        for size in range(1, LONGEST + 1):
            own = gains[sizes == size]
            means = rng.choice(own, (2000, len(own))).mean(1)
            low, high = np.quantile(means, [0.025, 0.975])
            cells.append(f"{own.mean():.2f} ({low:.2f}..{high:.2f})".rjust(16))
        print(f"gain of {name}'s chain".ljust(24), *cells)


if __name__ == "__main__":
    main()
