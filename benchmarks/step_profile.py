"""Where the time of a step goes: osbert's steps of pretraining_speed.py or finetune.py under torch's profiler.

    python benchmarks/step_profile.py [--size L4H512] [--length 128] [--device cpu] [--tokens N] [--steps 4] [--most 25]
        [--osbert '{"settings": {"compile": "no"}}']
    python benchmarks/step_profile.py --finetune mrpc [--data ../shared/data] [--steps 30] [--most 25]

The table gives milliseconds a step and shares of all operations' own time: on a CPU the processor's, on a GPU the
kernels'. The first line has the time of a step by the clock, with and without the profiler. What the kernels of a GPU
leave of it, the GPU waits.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from finetune import CASES, Run, planned
from osbert.interop.hub import minilm
from osbert.runs.finetune.finetune import lay_out, start
from osbert.runs.finetune.training_loop import FinetuneTrainer
from pretraining_speed import STEPS, Case, osbert_steps

WARM_UP = 10
"""Steps of fine-tuning before the measured ones, which are as many again: each step has other shapes."""


def finetune_steps(name: str, data: Path) -> Generator[object, None, None]:
    """Yield after each step of MiniLM on a data set of finetune.py, in batches of 32 rows at 5e-5."""
    asked = Run(
        case=name, side="osbert", seed=0, epochs=3, rows=0, batch=32, rate=5e-5, dropout=0.1, data=data, model=minilm()
    )
    plan, records = planned(asked)
    model = start(plan)
    rows = lay_out(plan, [records], model)
    with tempfile.TemporaryDirectory() as folder:
        run = FinetuneTrainer(
            model=model,
            rows=rows,
            settings=plan.training,
            optimizer=plan.optimizer,
            folder=Path(folder),
            scores=plan.scores,
        )
        run.rows.prepare(run.learner, run.folder)
        yield from run.trainer.run()


def clocked(training: Generator[object, None, None], steps: int, device: str) -> float:
    """Take some steps and return the milliseconds of one."""
    started = time.perf_counter()
    for _ in range(steps):
        next(training)
    if device == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - started) / steps


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="L4H512", help="L<layers>H<width>, base or large")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--tokens", type=int, help="in a step; 4,096, on a GPU 32,768")
    parser.add_argument("--steps", type=int, default=STEPS, help="under the profiler")
    parser.add_argument("--most", type=int, default=25, help="rows of the table")
    parser.add_argument("--osbert", default="{}", help="osbert's options as JSON: micro_tokens, settings")
    parser.add_argument(
        "--finetune", choices=tuple(CASES), help="the data set of a fine-tuning, in place of pretraining"
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    chosen = parser.parse_args()
    if chosen.finetune:
        training, before = finetune_steps(chosen.finetune, chosen.data), WARM_UP
    else:
        tokens = chosen.tokens or (32_768 if chosen.device == "cuda" else 4_096)
        case = Case(size=chosen.size, length=chosen.length, device=chosen.device, tokens=tokens)
        training, before = osbert_steps(case, json.loads(chosen.osbert)), 2 * STEPS  # every shape twice
    clocked(training, before, chosen.device)
    plain = clocked(training, before, chosen.device)
    activities = [ProfilerActivity.CUDA if chosen.device == "cuda" else ProfilerActivity.CPU]
    with profile(activities=activities) as profiler:
        under = clocked(training, chosen.steps, chosen.device)
    training.close()
    show(profiler, chosen, plain, under)


def show(profiler: profile, chosen: argparse.Namespace, plain: float, under: float) -> None:
    kind = "device" if chosen.device == "cuda" else "cpu"
    rows = [
        (getattr(event, f"self_{kind}_time_total") / 1000 / chosen.steps, event.count / chosen.steps, event.key)
        for event in profiler.key_averages()
    ]
    total = sum(spent for spent, _, _ in rows)
    print(f"$ {shlex.join(['python', *sys.argv])}")
    print(f"{plain:.1f} ms a step, {under:.1f} under the profiler; operations {total:.1f} ms")
    print(f"{'ms':>8}{'share':>8}{'calls':>8}  operation")
    for spent, calls, name in sorted(rows, reverse=True)[: chosen.most]:
        print(f"{spent:8.2f}{spent / total:8.1%}{calls:8.0f}  {name[:110]}")


if __name__ == "__main__":
    main()
