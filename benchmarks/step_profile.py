"""Where the time of a pretraining step goes: osbert's own steps of pretraining_speed.py under torch's profiler.

    python benchmarks/step_profile.py [--size L4H512] [--length 128] [--device cpu] [--tokens N] [--steps 4] [--most 25]
        [--osbert '{"settings": {"compile": "no"}}']

The table gives milliseconds a step and shares of all operations' own time: on a CPU the processor's, on a GPU the
kernels'. The first line has the time of a step by the clock, with and without the profiler. What the kernels of a GPU
leave of it, the GPU waits.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Generator

import torch
from torch.profiler import ProfilerActivity, profile

from pretraining_speed import STEPS, Case, osbert_steps


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
    chosen = parser.parse_args()
    tokens = chosen.tokens or (32_768 if chosen.device == "cuda" else 4_096)
    case = Case(size=chosen.size, length=chosen.length, device=chosen.device, tokens=tokens)
    training = osbert_steps(case, json.loads(chosen.osbert))
    clocked(training, 2 * STEPS, chosen.device)  # warms up: every shape twice
    plain = clocked(training, 2 * STEPS, chosen.device)
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
