"""Classes by name: MiniLM beside eight rows of each class, and the time of entailment beside transformers.

    OMP_NUM_THREADS=1 python benchmarks/label_names.py quality --data ../shared/data [--seeds 0,1,2] [--test 1000]
    OMP_NUM_THREADS=1 python benchmarks/label_names.py speed --data ../shared/data [--texts 30] [--rounds 3]

quality: the accuracy on test rows, drawn with seed 0, of the names alone, of the names in "This text is about
{label}." and calibrated; of the names, plain and calibrated, where four of five rows of half the classes are left out;
and of `osbert finetune classify` by default on eight other rows of each class, drawn by the seeds, of which "" are
none.
speed: seconds of one thread's processor time for texts with 20 classes, in turns, of a model of MiniLM's size with an
untrained head of entailment; the pipeline of transformers with its default batch of 1, and with 32.
"""

from __future__ import annotations

import argparse
import csv
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import osbert
from osbert import recipe
from osbert.inference.engine import load
from osbert.interop.folder import open_folder
from osbert.interop.hub import minilm
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.contract import Learner
from osbert.tasks.kinds.classify import Classify

Rows = list[tuple[str, str]]
SHOTS, CLASSES = 8, 20


def read_sets(data: Path) -> Iterator[tuple[str, Rows]]:
    """Yield each data set by its name, with (text, label) rows."""
    with (data / "banking77" / "train.csv").open(encoding="utf-8", newline="") as file:
        yield "Banking77", [(row["text"], row["category"]) for row in csv.DictReader(file)]
    names = {"0": "negative", "1": "positive"}
    lines = (data / "glue" / "SST-2" / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    yield "SST-2", [(text, names[label]) for text, label in (line.split("\t") for line in lines)]
    domains = {"ai": "artificial intelligence", "literature": "literature", "politics": "politics"}
    yield (
        "CrossNER's domains",
        [
            (" ".join(line.split()[0] for line in block.splitlines()), name)
            for folder, name in domains.items()
            for split in ("train", "dev")
            for block in (data / "ner" / "crossner" / folder / f"{split}.txt").read_text(encoding="utf-8").split("\n\n")
            if block.strip()
        ],
    )


def measure_quality(data: Path, seeds: list[int], test: int) -> None:
    """Print a line for each data set."""
    model = load(minilm())
    for name, rows in read_sets(data):
        random.Random(0).shuffle(rows)
        tested, others = rows[:test], rows[test:]
        if len(others) < test // 4:
            tested, others = rows[len(rows) // 4 :], rows[: len(rows) // 4]
        texts, labels = [text for text, _ in tested], sorted({label for _, label in rows})

        def accuracy(predictions: list[osbert.tasks.Prediction], tested: Rows = tested) -> float:
            return 100 * float(np.mean([p.value == label for p, (_, label) in zip(predictions, tested, strict=True)]))

        zero = [
            accuracy(model.predict(texts, labels=labels, **options))
            for options in ({}, {"template": "This text is about {label}."}, {"calibrate": True})
        ]
        few = []
        for seed in seeds:
            by_label: dict[str, Rows] = defaultdict(list)
            for row in random.Random(seed).sample(others, len(others)):
                by_label[row[1]].append(row)
            drawn = [row for label in labels for row in by_label[label][:SHOTS]]
            with tempfile.TemporaryDirectory() as folder:
                run = osbert.finetune("classify", model=minilm(), data=drawn, out=Path(folder) / "run", seed=seed)
                few.append(accuracy(run.predict(texts)))
        drawn_by = random.Random(0)
        frequent = {*labels[len(labels) // 2 :]}
        skewed = [row for row in tested if row[1] in frequent or drawn_by.random() < 0.2]
        rare = [
            accuracy(model.predict([text for text, _ in skewed], labels=labels, calibrate=calibrate), skewed)
            for calibrate in (False, True)
        ]
        print(f"skewed: {rare[0]:.1f}, calibrated {rare[1]:.1f}", end="; ")
        print(name, len(labels), len(tested), *(f"{score:.1f}" for score in zero), [f"{score:.1f}" for score in few])


def measure_speed(data: Path, count: int, rounds: int) -> None:
    """Print the seconds of each side in every round, and the ratios of their medians."""
    from transformers import pipeline

    _, rows = next(read_sets(data))
    texts = [text for text, _ in random.Random(0).sample(rows, count)]
    labels = [label.replace("_", " ") for label in sorted({label for _, label in rows})[:CLASSES]]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        task = Classify(labels=("contradiction", "entailment", "neutral"), text="a", pair="b")
        encoder = open_folder(minilm())
        torch.manual_seed(0)
        write_model(
            Learner(encoder.backbone, {task.name: task.head(encoder.backbone)}), folder, **task.export_metadata()
        )
        write_tokenizer(encoder.tokenizer, folder, length=512)
        (folder / "recipe.toml").write_text(recipe.dump({"task": task.name, task.name: recipe.as_table(task)}))
        ours, theirs = load(folder), pipeline("zero-shot-classification", model=str(folder), device="cpu")
        template = "This text is about {}."
        sides: dict[str, Callable[[], object]] = {
            "osbert": lambda: ours.predict(texts, labels=labels),
            "pipeline": lambda: theirs(texts, labels, hypothesis_template=template),
            "pipeline, batch 32": lambda: theirs(texts, labels, hypothesis_template=template, batch_size=32),
        }
        seconds: dict[str, list[float]] = defaultdict(list)
        for _ in range(rounds):
            for side, call in sides.items():
                begin = time.process_time()
                call()
                seconds[side].append(time.process_time() - begin)
    first = float(np.median(seconds["osbert"]))
    for side, times in seconds.items():
        median = float(np.median(times))
        print(side, [f"{value:.2f}" for value in times], f"{median:.2f} s, {median / first:.2f} times osbert's")


def main() -> None:
    """Read the words of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quality", "speed"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--texts", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.what == "quality":
        measure_quality(options.data, [int(seed) for seed in options.seeds.split(",") if seed], options.test)
    else:
        measure_speed(options.data, options.texts, options.rounds)


if __name__ == "__main__":
    main()
