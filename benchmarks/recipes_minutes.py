"""Recipes at one size for the same minutes on one corpus: held-out loss, then SST-2, MRPC and RTE after fine-tuning.

    python benchmarks/recipes_minutes.py --corpus CORPUS --data GLUE [--minutes 10] [--layers 4 --width 256 --heads 4]
        [--length 128] [--seeds 3] [--rows 8000] [--device cpu] [--jobs 1]

Each side is pretrained in a process of its own by the code of `osbert pretrain RECIPE --minutes M`, which plans its
schedule for the minutes. With `--jobs 2` two are at work at a time, with half of the cores each, so that whatever else
the machine does slows both. A side is a recipe with further settings, if any: --sides "bert-paper" "bert-fast
--batch 64". Both take one sequence length, without a longer one at the end, and draw from the same training text.

The held-out loss is bert-paper's own for every side, whatever a side trained on: the same held-out text in the same
pairs with the same masks, 15% of the tokens, 80/10/10. Fine-tuning has the same settings, rows and seeds for every side
and takes the last epoch's score. GLUE's folder has SST-2/ and RTE/ with train.tsv and dev.tsv, and MRPC/ either so or
with msr_paraphrase_train.txt alone, of which a tenth is then held out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from osbert.console.recipe_options import recipe_and_settings
from osbert.data.pack import Packer
from osbert.interop.folder import open_folder
from osbert.models.contract import Loss
from osbert.runs.contract import Notice
from osbert.runs.events import Epoch
from osbert.runs.finetune.model import read_model
from osbert.runs.finetune.rows import FinetuneRows, TaskRows
from osbert.runs.finetune.settings import FinetuneOptimizer, FinetuneSettings
from osbert.runs.finetune.training_loop import FinetuneTrainer
from osbert.runs.pretrain import pretraining
from osbert.runs.pretrain.first_weights import build_learner
from osbert.runs.pretrain.pretraining import since_start
from osbert.runs.pretrain.settings import PretrainPlan, read_plan
from osbert.tasks import Prediction, Record
from osbert.tasks.kinds.classify import Classify
from osbert.training.processor import choose

MEASURE = "bert-paper"
"""The recipe whose held-out batches measure every side."""
POSITIVE = {"SST-2": "1", "MRPC": "1", "RTE": "entailment"}
"""The tasks, and the label whose F1 is told."""
TEXTS = (("#1 String", "#2 String"), ("sentence1", "sentence2"), ("sentence",))
"""The columns of the texts in GLUE's tables."""
PRETRAINED = ("recipe", "minutes", "steps", "tokens", "held-out MLM loss", "accuracy", "NSP")
SCORED = ("SST-2 accuracy", "MRPC accuracy", "MRPC F1", "RTE accuracy")
"""The columns of the table."""
NEVER = 10**9


class Paired(Classify):
    """Texts or pairs with a label; scored without scikit-learn, which a machine for training may lack."""

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the accuracy and each label's F1 ("f1/label")."""
        said = np.array([prediction.value for prediction in predictions])
        true = np.array([record.label for record in records])
        f1 = {}
        for label in self.labels:
            hits = np.sum((said == label) & (true == label))
            f1[f"f1/{label}"] = float(2 * hits / max(1, np.sum(said == label) + np.sum(true == label)))
        return {"accuracy": float(np.mean(said == true)), **f1}


@dataclass
class Side:
    """A recipe with its further settings, and what was measured of it."""

    name: str
    run: Path
    facts: dict[str, float] = field(default_factory=dict)
    scores: dict[str, list[dict[str, float]]] = field(default_factory=dict)


def main(words: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if words is None else words
    options = arguments(words)
    if options.pretrain:
        pretrain(options.pretrain, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = options.out or Path(folder)
        sides = [Side(name, runs / f"side-{number}") for number, name in enumerate(options.sides)]
        threads = max(1, len(os.sched_getaffinity(0)) // options.jobs)
        os.environ["OMP_NUM_THREADS"] = str(threads)  # of the processes that are started
        torch.set_num_threads(threads)
        with ThreadPoolExecutor(options.jobs) as pool:
            # Nothing is measured while another side trains.
            minutes = list(pool.map(lambda side: timed(side, words), sides))
        for side, taken in zip(sides, minutes):
            side.facts = {"minutes": taken, **measure(side, options)}
            print(f"{side.name}: {side.facts}", flush=True)
        with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            jobs = [
                (side, name, seed, pool.submit(finetune, side, splits, seed, options))
                for name, splits in (tasks(options.data, options.rows) if options.data else ())
                for seed in range(options.seeds)
                for side in sides
            ]
            for side, name, seed, job in jobs:
                found = job.result()
                side.scores.setdefault(name, []).append(found)
                print(f"{name} seed {seed} {side.name}: accuracy {found['accuracy']:.4f}", flush=True)
    table(sides, options)


def timed(side: Side, words: Sequence[str], **process: Any) -> float:
    """Pretrain a side in a process of its own; return the minutes that it took.

    `words`: this script's arguments. `process`: those of subprocess.run, such as `timeout`, whose errors are raised.
    """
    begun = time.perf_counter()
    command = [sys.executable, __file__, *words, f"--pretrain={side.name}", f"--out={side.run}"]
    subprocess.run(command, check=True, **process)
    return (time.perf_counter() - begun) / 60


def settings(name: str, options: argparse.Namespace) -> list[str]:
    """Return the settings of a side: the common ones, under its own."""
    sizes = [f"--model.{size}={getattr(options, size)}" for size in ("layers", "width", "heads")]
    common = ["--model.feedforward=0", f"--data.length={options.length}", "--data.long_share=0"]
    return [*sizes, *common, f"--device={options.device}", *shlex.split(name)[1:]]


def pretrain(name: str, options: argparse.Namespace) -> None:
    """Pretrain one side for the minutes, as `osbert pretrain` does."""
    out, own = options.out, [*settings(name, options), f"--minutes={options.minutes}"]
    chosen, given = recipe_and_settings([shlex.split(name)[0], *own])
    request = pretraining.PretrainRequest(
        recipe=chosen,
        settings=given,
        corpus=options.corpus,
        out=out,
        begun=time.monotonic() - since_start(),
    )
    pretraining.pretrain(request, watch=lambda event: print(event) if isinstance(event, Notice) else None)


def measure(side: Side, options: argparse.Namespace) -> dict[str, float]:
    """Return the side's loss and accuracy on the common held-out batches, and how much it trained."""
    plan = read_plan(str(side.run / "recipe.toml"), {}, corpus=options.corpus)
    common = read_plan(*recipe_and_settings([MEASURE, *settings(MEASURE, options)]), corpus=options.corpus)
    loader = common.loader(length=options.length)
    if loader.held != plan.loader(length=options.length).held:
        raise SystemExit(f"{side.name} holds out other text than {MEASURE}: leave data.seed, pool and held_out alone")
    learner = build_learner(plan)
    open_folder(side.run).fill(learner)
    processor = choose(options.device, "fp32")
    learner.to(processor.device).eval()
    sums: dict[str, list[float]] = {}
    with torch.no_grad():
        for batch in loader.make_held_out():
            for objective, loss in learner(batch.to(processor.device)).items():
                add(sums.setdefault(objective, [0.0, 0.0, 0.0]), loss)
    lines = (side.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = [line for line in map(json.loads, lines) if "tokens" in line][-1]
    facts = {"steps": plan.settings.training.steps, "tokens": last["tokens"], "parameters": parameters(plan)}
    for objective, (total, count, hits) in sums.items():
        facts |= {f"{objective}.loss": total / count, f"{objective}.accuracy": hits / count}
    return facts


def add(sums: list[float], loss: Loss) -> None:
    hits = 0.0 if loss.hits is None else float(loss.hits)
    sums[:] = [sums[0] + float(loss.total), sums[1] + loss.count, sums[2] + hits]


def parameters(plan: PretrainPlan) -> int:
    return sum(weight.numel() for weight in plan.settings.model.empty().parameters())


def finetune(side: Side, splits: dict[str, list[Record]], seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Return the development scores after the last epoch."""
    task = Paired(length=options.length, pair="second" if len(splits["dev"][0].texts) == 2 else "")
    wanted = FinetuneSettings(
        epochs=options.epochs, seed=seed, device=options.device, checkpoint_every=NEVER, log_every=NEVER
    )
    with tempfile.TemporaryDirectory() as folder:
        model = read_model(side.run, replace(wanted, seed=seed), from_scratch=options.from_scratch)
        packer = Packer(tokenizer=model.tokenizer, length=min(task.length, model.backbone.architecture.length))
        run = FinetuneTrainer(
            model=model,
            rows=FinetuneRows.of([TaskRows.of(task.fit(splits["train"]), splits, packer)]),
            settings=wanted,
            optimizer=FinetuneOptimizer(learning_rate=options.rate),
            folder=Path(folder),
        )
        *_, last = (event for event in run.run() if isinstance(event, Epoch))
    return last.metrics


def tasks(folder: Path, rows: int) -> Iterator[tuple[str, dict[str, list[Record]]]]:
    """Yield each task's name and its training and development records, at most `rows` of training, drawn once."""
    for name in POSITIVE:
        splits = {split: read(path) for split in ("train", "dev") if (path := folder / name / f"{split}.tsv").exists()}
        if not splits:
            splits = {"train": read(folder / name / "msr_paraphrase_train.txt")}
        order = np.random.default_rng(0).permutation(len(splits["train"])).tolist()
        if "dev" not in splits:
            held = len(order) // 10
            splits["dev"] = [splits["train"][place] for place in order[:held]]
            order = order[held:]
        splits["train"] = [splits["train"][place] for place in order[: rows or None]]
        yield name, splits


def read(path: Path) -> list[Record]:
    """Return the records of one of GLUE's tables, known by the names of its columns."""
    header, *lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    columns = {name: place for place, name in enumerate(header.split("\t"))}
    texts = next(names for names in TEXTS if set(names) <= set(columns))
    label = columns["Quality" if "Quality" in columns else "label"]
    cells = [line.split("\t") for line in lines]
    return [
        Record(number=number, texts=tuple(row[columns[name]] for name in texts), label=row[label])
        for number, row in enumerate(cells)
    ]


def table(sides: Sequence[Side], options: argparse.Namespace) -> None:
    """Print what was measured, a side a row, as Markdown."""
    heading = [*PRETRAINED, *SCORED]
    print(f"\nlayers {options.layers}, width {options.width}, {options.minutes:g} minutes, {options.seeds} seeds")
    print("| " + " | ".join(heading) + " |\n" + "|---" * len(heading) + "|")
    for side in sides:
        print("| " + " | ".join([*pretrained(side), *scored(side)]) + " |")


def pretrained(side: Side) -> list[str]:
    """Return a side's cells under PRETRAINED."""
    facts = side.facts
    cells = [side.name, f"{facts['minutes']:.1f}", f"{facts['steps']:,}", f"{facts['tokens'] / 1e6:.1f}M"]
    cells += [f"{facts['mlm.loss']:.3f}", f"{facts['mlm.accuracy']:.1%}"]
    return [*cells, f"{facts['nsp.accuracy']:.1%}" if "nsp.accuracy" in facts else "-"]


def scored(side: Side) -> list[str]:
    """Return a side's cells under SCORED; "-" for a task without scores."""
    kinds = [(task, kind) for task in POSITIVE for kind in ("accuracy", *([f"f1/{POSITIVE[task]}"] * (task == "MRPC")))]
    return [spread([run[kind] for run in side.scores[task]]) if task in side.scores else "-" for task, kind in kinds]


def spread(values: Sequence[float]) -> str:
    """Return the mean in per cent, with the standard deviation over the seeds."""
    deviation = f" +- {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{deviation}"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; `words` in place of the command's own arguments."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="GLUE's folder; without it nothing is fine-tuned")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--sides", nargs="+", default=["bert-paper", "bert-fast"])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8_000, help="most training rows a task; 0 for all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate of fine-tuning")
    parser.add_argument(
        "--from-scratch", action="store_true", help="fine-tune fresh weights: what no pretraining gives"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="sides at work at a time; leave it at 1 on a GPU")
    parser.add_argument("--out", type=Path, help="keep the pretraining runs in this folder")
    parser.add_argument("--pretrain", default="", help=argparse.SUPPRESS)
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
