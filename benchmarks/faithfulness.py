"""Are weights of words faithful? Deletion and sufficiency on SST-2 and MRPC, beside random and a random head; and time.

    python benchmarks/faithfulness.py --model MINILM --data GLUE [--train 1000] [--rows 100] [--epochs 2] [--seed 0]

A model is fine-tuned on `train` rows of each set, and its predictions for `rows` others are explained. Words are ranked
by integrated gradients, by occlusion, by integrated gradients of the same encoder under a head of random weights, and
at random. Printed for each order, as means over 1, 5, 10, 20 and 50% of the words, one at least (DeYoung et al. 2020,
section 4): comprehensiveness, how far the probability of the predicted label falls when the first words are replaced by
[MASK] (higher is better), and sufficiency, how far it falls when all other words are (lower is better), each with the
95% interval over rows. Then the completeness error, the rank correlation with occlusion and with the random head, and
the median seconds of one text of 128 tokens at 32 points, on the threads that torch takes.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import osbert
from osbert.analysis.attribution import attribute
from osbert.analysis.explanation import OutputScore, baseline_vector, rank_correlation
from osbert.analysis.interpolation import Blend, Interpolation
from osbert.analysis.occlusion import occlusion
from osbert.analysis.words import token_words
from osbert.inference.engine import Engine
from osbert.models.contract import Learner
from osbert.tasks import Record
from osbert.tasks.explained import contrast

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
        score=OutputScore(learner, task.name, weights),
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
    drops = occlusion(line, groups, words, counts)
    head = engine.learner.heads[engine.fine_tuned.name]
    kept = {name: weight.clone() for name, weight in head.state_dict().items()}
    torch.manual_seed(seed)
    for weight in head.parameters():
        torch.nn.init.normal_(weight, std=0.02)
    others, _ = gradients(line)
    head.load_state_dict(kept)
    rng = np.random.default_rng(seed)
    orders = {
        "integrated gradients": [np.argsort(-one) for one in ours],
        "occlusion": [np.argsort(-one) for one in drops],
        "a random head's gradients": [np.argsort(-one) for one in others],
        "random order": [rng.permutation(count) for count in counts],
    }
    for name, order in orders.items():
        enough, needed = falls(line, words, order)
        print(f"{name:26} comprehensiveness {with_interval(enough)}  sufficiency {with_interval(needed)}")
    few = np.mean(np.less(errors, 0.02))
    print(f"completeness error: median {statistics.median(errors):.2%}, under 2% in {few:.0%}")
    for name, compared in {"occlusion": drops, "a random head": others}.items():
        known = [one for one in map(rank_correlation, ours, compared) if one is not None]
        print(
            f"rank correlation with {name}: mean {np.mean(known):.2f}, of absolute values {np.mean(np.abs(known)):.2f}"
        )


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
