"""Are weights of words faithful? Deletion and sufficiency on SST-2 and MRPC, beside random orders and random models.

    python benchmarks/faithfulness.py --model MINILM --data GLUE [--train 1000] [--rows 100] [--epochs 2] [--seed 0]

A model is fine-tuned on `train` rows of each set, and its predictions for `rows` others are explained. Words are ranked
by integrated gradients, by occlusion, by integrated gradients of a model with random weights, and at random. Printed
for each order, as means over 1, 5, 10, 20 and 50% of the words, one at least (DeYoung et al. 2020, section 4):
comprehensiveness, how far the probability of the predicted label falls when the first words are replaced by [MASK]
(higher is better), and sufficiency, how far it falls when all other words are (lower is better), each with the 95%
interval over rows. Then the completeness error, and the rank correlation of the weights with those of occlusion, of the
same encoder under HEADS heads of random weights, of random weights from the top down to a layer (Adebayo et al. 2018,
section 3), and of a shuffled order, which says what length alone gives. A random head reads a fine-tuned encoder's
states along the axis that they lie on, with a sign of its own: hence the share of their variance on the first one. Last
the median seconds of one text of 128 tokens at 32 points, on the threads that torch takes.
"""

from __future__ import annotations

import argparse
import copy
import csv
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import osbert
from osbert.analysis.attribution import Blend, Interpolation, attribute, occlusion
from osbert.analysis.explanation import OutputScore, baseline_vector, rank_correlation
from osbert.analysis.words import token_words
from osbert.evaluation.forward import batches
from osbert.inference.engine import Engine
from osbert.models.contract import Learner
from osbert.tasks import Record
from osbert.tasks.edges import contrast

HEADS = 4
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
TEXTS = {"SST-2": ("sentence",), "MRPC": ("#1 String", "#2 String")}
LABELS = {"SST-2": "label", "MRPC": "Quality"}
FILES = {"SST-2": "SST-2/train.tsv", "MRPC": "MRPC/msr_paraphrase_train.txt"}


def rows_of(data: Path, name: str, count: int, seed: int) -> list[dict[str, str]]:
    """Return so many rows of a set, drawn at random, as text, pair and label."""
    with (data / FILES[name]).open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    drawn = np.random.default_rng(seed).permutation(len(rows))[:count].tolist()
    keys = ("text", "pair")
    return [
        {**{key: rows[n][column] for key, column in zip(keys, TEXTS[name])}, "label": f"is {rows[n][LABELS[name]]}"}
        for n in drawn
    ]


def line_of(engine: Engine, learner: Learner, records: Sequence[Record], labels: Sequence[str]) -> Interpolation:
    """Return records with the scores of their labels and the words that they hold."""
    task = engine.fine_tuned
    tokens = [token_words(task, record, engine.packer).tokens[0] for record in records]
    weights = [contrast(task.classes.index(label), len(task.classes)) for label in labels]
    return Interpolation(
        learner=learner,
        examples=[task.encode(record, engine.packer)[0] for record in records],
        score=OutputScore(task.name, weights),
        baseline=baseline_vector(learner, engine.tokenizer, "auto")[1],
        fixed=[own < 0 for own in tokens],
    )


def falls(
    line: Interpolation, words: Sequence[NDArray[np.integer]], orders: Sequence[NDArray[np.integer]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return comprehensiveness and sufficiency (rows,) of words in some orders, of two labels."""
    blends: list[Blend] = []
    for place, (own, order) in enumerate(zip(words, orders)):
        blends.append(line.at(place, 1.0))
        for share in SHARES:
            first = np.isin(own, order[: max(1, round(share * len(order)))])
            blends += [Blend(place, (~first).astype(np.float32)), Blend(place, first.astype(np.float32))]
    probabilities = 1 / (1 + np.exp(-line.scores(blends))).reshape(len(words), -1)
    drops = probabilities[:, :1] - probabilities[:, 1:]
    return drops[:, ::2].mean(axis=1), drops[:, 1::2].mean(axis=1)


def with_interval(values: NDArray[np.float64]) -> str:
    """Return the mean of rows with the half of its 95% interval."""
    return f"{values.mean():.3f} ± {1.96 * values.std(ddof=1) / len(values) ** 0.5:.3f}"


def measure(engine: Engine, rows: Sequence[dict[str, str]], seed: int) -> None:
    """Print the figures of one fine-tuned run on rows."""
    records = [engine.fine_tuned.record_of([row[key] for key in ("text", "pair") if key in row]) for row in rows]
    predictions = engine.predict_records(records)
    labels = [str(one.value) for one in predictions]
    print(f"accuracy {np.mean([label == row['label'] for label, row in zip(labels, rows)]):.3f} of {len(rows)} rows")
    found = [token_words(engine.fine_tuned, record, engine.packer) for record in records]
    words, counts = [one.tokens[0] for one in found], [len(one.words) for one in found]
    groups = [range(place, place + 1) for place in range(len(records))]

    def gradients(line: Interpolation) -> tuple[list[NDArray[np.float64]], list[float]]:
        made = attribute(line, groups, points=32)
        sums = [np.bincount(own[own >= 0], one.weights[0][own >= 0], n) for own, one, n in zip(words, made, counts)]
        return [np.asarray(one) for one in sums], [one.error for one in made]

    line = line_of(engine, engine.learner, records, labels)
    ours, errors = gradients(line)
    drops = occlusion(line, groups, words, [np.arange(count) for count in counts])
    depth = len(engine.learner.backbone.stack) - 1
    models = {depths: [_random(engine.learner, seed, depths) for seed in range(HEADS)] for depths in (0, 1, depth)}
    others = {depths: [gradients(replace(line, learner=one))[0] for one in found]
              for depths, found in models.items()}  # fmt: skip
    rng = np.random.default_rng(seed)
    orders = {
        "integrated gradients": [np.argsort(-one) for one in ours],
        "occlusion": [np.argsort(-one) for one in drops],
        "a random model's gradients": [np.argsort(-one) for one in others[depth][0]],
        "random order": [rng.permutation(count) for count in counts],
    }
    for name, order in orders.items():
        enough, needed = falls(line, words, order)
        print(f"{name:26} comprehensiveness {with_interval(enough)}  sufficiency {with_interval(needed)}")
    few = np.mean(np.less(errors, 0.02))
    print(f"completeness error: median {statistics.median(errors):.2%}, under 2% in {few:.0%}")
    print(f"variance of the pooled states on their first axis: {first_axis(line):.1%}")
    compared = {"occlusion": [drops], "a shuffled order": [[rng.permutation(one) for one in ours]]}
    compared |= {f"random head, {depths} random layers": found for depths, found in others.items()}
    for name, weighed in compared.items():
        means = [correlations(ours, one) for one in weighed]
        mean, size = np.mean(means, axis=0)
        spread = ", ".join(f"{one:.2f}" for one, _ in means)
        print(f"rank correlation with {name}: mean {mean:.2f} ({spread}), of absolute values {size:.2f}")


def correlations(ours: Sequence[NDArray[np.floating]], others: Sequence[NDArray[np.floating]]) -> tuple[float, float]:
    """Return the mean over rows of the rank correlation, and of its absolute value."""
    known = [one for one in map(rank_correlation, ours, others) if one is not None]
    return float(np.mean(known)), float(np.mean(np.abs(known)))


def first_axis(line: Interpolation) -> float:
    """Return the part of the variance of the pooled states that lies on their first principal axis."""
    with torch.no_grad():
        states = torch.cat([line.learner.backbone(batch).pooled for batch in batches(line.examples)]).double()
    sizes = torch.linalg.svdvals(states - states.mean(dim=0)).square()
    return float(sizes[0] / sizes.sum())


def _random(learner: Learner, seed: int, layers: int) -> Learner:
    """Return a learner with a head, and so many layers from the top with the pooler, of random weights."""
    made = copy.deepcopy(learner)
    torch.manual_seed(seed)
    parts = [*made.heads.values(), *(made.backbone.above if layers else ()), *made.backbone.stack[::-1][:layers]]
    for name, weight in (named for part in parts for named in part.named_parameters()):
        if weight.ndim >= 2:
            torch.nn.init.normal_(weight, std=0.02)
        else:
            torch.nn.init.constant_(weight, float("norm" in name and name.endswith("weight")))
    return made


def seconds(engine: Engine) -> float:
    """Return the median seconds of a text of 128 tokens at 32 points, of five."""
    text = " ".join(["film"] * 126)
    line = line_of(engine, engine.learner, [engine.fine_tuned.record_of([text])], [engine.fine_tuned.classes[0]])
    assert len(line.examples[0]) == 128
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        attribute(line, [range(1)], points=32)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def main() -> None:
    """Fine-tune, explain and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="SST-2,MRPC")
    for name, value in {"train": 1000, "rows": 100, "epochs": 2, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    for name in given.sets.split(","):
        rows = rows_of(given.data, name, given.train + given.rows, given.seed)
        training, held = rows[: given.train], rows[given.train :]
        with tempfile.TemporaryDirectory() as folder:
            settings = {"epochs": given.epochs, "seed": given.seed, "batch": 16, "learning_rate": 5e-5}
            settings |= {"pair": "pair"} if len(TEXTS[name]) == 2 else {}
            run = osbert.finetune(
                "classify", model=given.model, data={"train": training, "dev": held}, out=f"{folder}/run", **settings
            )
            engine = osbert.load(run.folder)
            print(f"{name}: {given.train:,} training rows, {given.epochs} epochs, seed {given.seed}")
            measure(engine, held, given.seed)
            if len(TEXTS[name]) == 1:
                print(f"128 tokens at 32 points: {seconds(engine):.2f} s with {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
