"""MiniLM fine-tuned by osbert and by transformers on GLUE, entities, two-way choice and SQuAD: scores and wall times.

    python benchmarks/finetune.py --data ../shared/data [--tasks sst2,mrpc,...] [--rows 20000] [--epochs 3]
        [--seeds 0,1,2] [--sides osbert,padded,best] [--batch 32] [--learning-rate 5e-5] [--dropout 0.1]

Both start from one checkpoint and learn the same records with the same settings (AdamW without decay on biases and
norms, gradients clipped at 1, linear warm-up over a tenth of the steps and decay); what they draw differs (the order,
the head's start, dropout), and transformers' learning rates are one step behind. Each run is a process of its own, and
the sides take turns at going first.

osbert runs as `osbert finetune` does, in the precision it chooses. transformers' models go through the usual loop in
two ways: "padded", every sequence padded to the task's length, in fp32, as run_glue.py; and "best", padded to the
longest in its batch, in bf16 where the processor has it. SQuAD's windows are run_qa.py's there (they share 128 pieces;
a batch is of windows) and google-research/bert's here (they begin 128 pieces apart; a batch is of questions).
"paired" is "best" with the head, the order and the learning rates of osbert's run: without dropout the two are equal
but for rounding. It is there for tasks whose labels and sequences are the same on both sides, and its seconds, in which
the rows are read twice, are not to be compared.

The score is the task's own after the last epoch, by osbert's metrics for all sides: accuracy (SST-2, RTE, Story Cloze),
F1 (MRPC, entities, SQuAD 1.1; SQuAD 2.0 with its best threshold), Matthews (CoLA) or Spearman correlation (STS-B).
Before the scores stands each epoch's mean loss in training.
Seconds go from the records in memory to the last score: tokenization, training, scoring after each epoch; osbert's
checkpoints and run folder too. The table has a row for each task and side; runs are told on stderr as they end.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import finetune_theirs
from finetune_theirs import Result
from osbert.interop.hub import minilm
from osbert.options import parse_settings
from osbert.runs.finetune.finetune import finetune_plan
from osbert.runs.finetune.plan import FinetunePlan, read_plan, schema
from osbert.runs.finetune.records import SPLITS
from osbert.tasks import Record, load
from osbert.training.processor import choose
from osbert_lab.study import trials as finetune_trials  # noqa: F401 (`finetune_plan` imports them late: not timed)

WARMUP, DECAY, EPSILON, CLIP = 0.1, 0.01, 1e-6, 1.0
SIDES = ("osbert", "padded", "best", "paired")
UNPAIRED = ("stsb", "conll2003", "squad1", "squad2")
"""Data sets that "paired" is not for: osbert standardises numbers, and cuts long texts into other windows."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A data set: osbert's name of the task, its folder below --data, its sequences' length, and further settings."""

    task: str
    folder: str
    length: int = 128
    settings: tuple[str, ...] = ()


CASES = {
    "sst2": Case(task="sst2", folder="glue/SST-2"),
    "mrpc": Case(task="mrpc", folder="glue/MRPC"),
    "rte": Case(task="rte", folder="glue/RTE"),
    "cola": Case(task="cola", folder="glue/CoLA"),
    "stsb": Case(task="stsb", folder="glue/STS-B"),
    "conll2003": Case(task="conll2003", folder="ner/conll2003", settings=("--context", "sentence")),
    "wnut17": Case(task="wnut17", folder="ner/wnut17"),
    "storycloze": Case(task="choose", folder="choice"),
    "squad1": Case(task="squad", folder="squad", length=384, settings=("--release", "1.1")),
    "squad2": Case(task="squad", folder="squad", length=384, settings=("--release", "2.0")),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One fine-tuning of one side. `rows`: most training rows, drawn once for all sides; 0 for all."""

    case: str
    side: str
    seed: int
    epochs: int
    rows: int
    batch: int
    rate: float
    dropout: float
    data: Path
    model: Path


def run(asked: Run) -> Result:
    """Read the data, which is not timed, and fine-tune."""
    plan, records = planned(asked)
    return ours(plan, records) if asked.side == "osbert" else finetune_theirs.train(plan, records, side=asked.side)


def planned(asked: Run) -> tuple[FinetunePlan, dict[str, list[Record]]]:
    """Return the plan of a run and its records by their split, those of training that teach."""
    case = CASES[asked.case]
    settings = {
        "epochs": asked.epochs,
        "batch": asked.batch,
        "learning-rate": asked.rate,
        "warmup": WARMUP,
        "weight-decay": DECAY,
        "optimizer.epsilon": EPSILON,
        "clip": CLIP,
        "dropout": asked.dropout,
        "length": case.length,
        "device": "cpu",
        "seed": asked.seed,
    }
    tokens = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    data = asked.data / case.folder
    plan = read_plan(
        case.task, parse_settings([*tokens, *case.settings], schema(case.task)), model=asked.model, data=data
    )
    task, records = load(plan.task, SPLITS)
    chosen = drawn([record for record in records["train"] if not task.lacks(record)], asked.rows)
    records["train"] = [dataclasses.replace(record, number=number) for number, record in enumerate(chosen)]
    return dataclasses.replace(plan, tasks=(task,)), records


def drawn(records: Sequence[Record], rows: int) -> list[Record]:
    """Return `rows` of the records, the same ones always."""
    if not 0 < rows < len(records):
        return list(records)
    return [records[place] for place in np.random.default_rng(0).permutation(len(records))[:rows].tolist()]


def ours(plan: FinetunePlan, records: Mapping[str, Sequence[Record]]) -> Result:
    """Fine-tune as the command does."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        out = Path(folder) / "run"
        finetune_plan(plan, [records], out)
        seconds = time.perf_counter() - started
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if "epoch" in line]
    scores = [100 * line[f"dev.{plan.task.criterion}"] for line in epochs]
    return Result(losses=[line["train.loss"] for line in epochs], scores=scores, seconds=seconds)


def table(case: str, results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Yield a row for each side: score, osbert's lead in points, seconds, and osbert's share of them."""
    last = {side: [result.scores[-1] for result in found] for side, found in results.items()}
    seconds = {side: statistics.mean(result.seconds for result in found) for side, found in results.items()}
    for side in results:
        lead = share = ""
        if side != "osbert" and "osbert" in results:
            lead = spread([one - other for one, other in zip(last["osbert"], last[side])], "+.2f")
            share = f"{seconds['osbert'] / seconds[side]:.2f}"
        yield f"| {case} | {side} | {spread(last[side], '.2f')} | {lead} | {seconds[side]:.0f} | {share} |"


def told(result: Result) -> str:
    """Return a run in words."""
    losses = " ".join(f"{loss:.6f}" for loss in result.losses)
    scores = " ".join(f"{score:.2f}" for score in result.scores)
    return f"loss {losses}; score {scores}; {result.seconds:.1f} s"


def spread(values: Sequence[float], form: str) -> str:
    """Return the mean, with the deviation where there are two or more."""
    mean = format(statistics.mean(values), form)
    return f"{mean} +- {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def listed(text: str, known: Sequence[str]) -> list[str]:
    """Return the names in a list with commas; SystemExit at one that is not known."""
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", type=Path, default=minilm())
    parser.add_argument("--tasks", default=",".join(CASES), help="several with commas between")
    parser.add_argument("--sides", default="osbert,padded,best", help="several with commas between")
    parser.add_argument("--rows", type=int, default=20_000, help="most training rows; 0 for all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rate", dest="rate", type=float, default=5e-5)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[0, 1, 2])
    options = parser.parse_args()
    sides, cases = listed(options.sides, SIDES), listed(options.tasks, list(CASES))
    if "paired" in sides and (without := [case for case in cases if case in UNPAIRED]):
        raise SystemExit(
            f'{", ".join(without)}: no such run can be paired; leave it out of --tasks, or "paired" out of --sides'
        )
    common = {name: getattr(options, name) for name in ("epochs", "rows", "batch", "rate", "dropout", "data", "model")}
    precision = choose("cpu", "auto").precision
    print(f"{torch.get_num_threads()} threads; osbert and transformers' best in {precision}; {options.epochs} epochs,")
    print(
        f"at most {options.rows or 'all'} rows, batch {options.batch}, learning rate {options.rate}, "
        f"dropout {options.dropout}, seeds {options.seeds}: mean +- standard deviation\n"
    )
    print("| data | side | score | osbert - side | seconds | osbert / side |\n|---|---|---|---|---|---|", flush=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as processes:
        for case in cases:
            results: dict[str, list[Result]] = {side: [] for side in sides}
            for turn, seed in enumerate(options.seeds):
                for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
                    result = processes.submit(run, Run(case=case, side=side, seed=seed, **common)).result()
                    results[side].append(result)
                    print(f"{case}, seed {seed}, {side}: {told(result)}", file=sys.stderr, flush=True)
            print("\n".join(table(case, results)), flush=True)


if __name__ == "__main__":
    main()
