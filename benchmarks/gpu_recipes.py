"""The stages of gpu.py that train by recipes: bert-paper and bert-fast for 8 minutes each, then GLUE's scores of both.

Both have BASE's size, 128 tokens a sequence and one corpus, by the functions of recipes_minutes.py. A recipe is
pretrained in a process of its own, which is killed when the stage's time is up; then its loss on the same held-out
batches is measured. The runs stay in READY/recipes. The scores come from fine-tuning both with the same rows, settings
and seeds. A task and seed is begun for both runs or for neither; if only one run is there, that one is scored.

The corpus and GLUE's tables are those of READY/texts, which `make gpu-ready` made (tools/gpu_texts.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import recipes_minutes
from osbert.training.run_folder import RunFolder
from recipes_minutes import Side

if TYPE_CHECKING:
    from gpu import Account

SIDES = {"recipe-paper": "bert-paper", "recipe-fast": "bert-fast"}
"""The recipe of each stage that pretrains."""
SIZES = ["--layers=12", "--width=768", "--heads=12", "--rate=5e-5", "--rows=4000", "--seeds=3"]
"""BASE; a learning rate of the paper's grid."""
SMALL = ["--layers=1", "--width=64", "--heads=1", "--length=16", "--rows=8", "--seeds=1", "--epochs=1"]
FEW = "--steps 2 --batch 8"
"""In place of minutes, in small."""
AFTER = 15.0
"""Seconds to measure the held-out loss after pretraining."""
LEAST = 45.0
"""The first fine-tuning is not begun with fewer seconds left; a later one by the longest so far."""


def measure(account: Account, chosen: argparse.Namespace) -> None:
    """Pretrain the stage's recipe, or score what was pretrained."""
    texts = chosen.ready / "texts"
    words = [f"--corpus={texts / 'corpus'}", f"--data={texts / 'glue'}", f"--device={chosen.device}"]
    words += [*SMALL, "--minutes=0"] if chosen.small else [*SIZES, f"--minutes={chosen.minutes}"]
    if not account.clock.left:
        account.leave_out(chosen.stage)
    elif not texts.is_dir():
        account.add(error=f"there is no corpus in {texts}: run make gpu-ready where the data are, and bring it along")
    elif chosen.stage in SIDES:
        pretrain(account, side_of(chosen.stage, chosen), words)
    else:
        score(account, [side_of(stage, chosen) for stage in SIDES], recipes_minutes.arguments(words))


def side_of(stage: str, chosen: argparse.Namespace) -> Side:
    """Return the side of a stage that pretrains; its run is in a folder beside the texts."""
    name = SIDES[stage]
    return Side(f"{name} {FEW}" if chosen.small else name, chosen.ready / "recipes" / name)


def pretrain(account: Account, side: Side, words: Sequence[str]) -> None:
    """Pretrain a side anew, and measure it on the common held-out batches."""
    options = recipes_minutes.arguments(words)
    if account.clock.left <= 60 * options.minutes:
        account.leave_out(side.name)
        return
    shutil.rmtree(side.run, ignore_errors=True)
    side.run.parent.mkdir(parents=True, exist_ok=True)
    limit = max(60 * options.minutes, account.clock.left - AFTER)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with account.log.open("a", encoding="utf-8") as log:
        try:
            minutes = recipes_minutes.timed(
                side, words, timeout=limit, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        except subprocess.SubprocessError as error:
            why = "was not done in time" if isinstance(error, subprocess.TimeoutExpired) else last_line(account.log)
            account.add(side=side.name, error=f"{side.name}: {why}")
            return
    kept = account.add(side=side.name, minutes=minutes, run=str(side.run))
    side.facts = {"minutes": minutes, **recipes_minutes.measure(side, options)}
    account.change(kept, recipes_minutes.pretrained(side), **side.facts)


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"


def score(account: Account, sides: Sequence[Side], options: argparse.Namespace) -> None:
    """Fine-tune all sides that were pretrained, as long as there is time for each of them."""
    there = [side for side in sides if RunFolder(side.run).finished]
    for side in sides:
        if side not in there:
            account.leave_out(side.name, why=f"no run has ended in {side.run}")
    kept: dict[str, dict[str, Any]] = {}
    longest: dict[str, float] = {}
    tasks = list(recipes_minutes.tasks(options.data, options.rows)) if there else []
    for seed in range(options.seeds):
        for name, splits in tasks:
            each = longest.get(name, max(longest.values(), default=LEAST))
            if account.clock.left < each * len(there):
                account.leave_out(f"{name}, seed {seed}")
                continue
            for side in there:
                begun = account.clock.spent
                side.scores.setdefault(name, []).append(recipes_minutes.finetune(side, splits, seed, options))
                longest[name] = max(longest.get(name, 0.0), account.clock.spent - begun)
                show(account, kept, side)


def show(account: Account, kept: dict[str, dict[str, Any]], side: Side) -> None:
    """Bring a side's row up to date; its seeds are the fewest of a task."""
    seeds = min(map(len, side.scores.values()))
    found = {"side": side.name, "scores": side.scores}
    row = [side.name, str(seeds), *recipes_minutes.scored(side)]
    if side.name in kept:
        account.change(kept[side.name], row, **found)
    else:
        kept[side.name] = account.add(row, **found)
