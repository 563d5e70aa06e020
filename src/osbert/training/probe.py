"""Measures how fast training is, with the very trainer and loader that a run uses, in a few seconds."""

from __future__ import annotations

import contextlib
import math
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from osbert.data.step import Cursor, Loader
from osbert.training.processor import Processor
from osbert.training.trainer import Trainer

PROCESS = Path("/proc/self")
"""Linux's files with the memory of this process, and for resetting its peak."""
SMALL = 16
"""The first look at a step is at one of a part so large of its sequences, in case that a whole one takes minutes."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What some seconds of training showed.

    `step_seconds`: the mean, on which a plan stands; `median_seconds` is free of single slow steps. `step_tokens`: mean
    tokens of a step. `layout_seconds`: the wait for the loader's first pool. `warming_seconds`: what else the first
    steps took beyond their mean. `loader_share`: of the time, waiting for the loader. `memory`: peak bytes.
    `extrapolated`: a whole step was too slow to be taken, so its time is a line through two smaller ones.
    """

    step_seconds: float
    median_seconds: float
    step_tokens: float
    steps: int
    layout_seconds: float
    warming_seconds: float
    loader_share: float
    memory: int
    extrapolated: bool = False

    @property
    def tokens_per_second(self) -> float:
        """Return the tokens trained on in a second."""
        return self.step_tokens / self.step_seconds


def probe(begin: Callable[[int], Trainer], *, batch: int, seconds: float) -> Speed:
    """Return the speed of steps of `batch` sequences, measured in about so many seconds.

    `begin(size)` returns a fresh trainer whose steps have `size` sequences; what it trains is thrown away. A first look
    at small steps says whether whole ones fit the time; where they do not, the time of one is a line through two sizes.
    """
    small = max(1, batch // SMALL)
    trainer = begin(small)
    if small == batch:
        return train_for(trainer, seconds)
    started = time.perf_counter()
    first = train_for(trainer, seconds / 4)
    # Processes that train together must decide alike.
    seen = trainer.group.gathered((first.step_seconds, time.perf_counter() - started), "seconds of a small step")
    step, taken = map(max, zip(*seen))
    left = seconds - taken
    if 3 * step * batch / small < left:
        return train_for(begin(batch), left)
    larger = 4 * small if 12 * step < left else 2 * small
    second = train_for(begin(larger), left)
    return _line(first, second, sizes=(small, larger, batch))


def train_for(trainer: Trainer, seconds: float) -> Speed:
    """Train for some seconds, and for two steps at least; the first step, on a GPU the first three, only warm up."""
    warming = 3 if trainer.processor.device.type == "cuda" else 1
    reset_memory(trainer.processor)
    started = time.perf_counter()
    durations: list[float] = []
    marks = []
    before = started
    for progress in trainer.run():
        now = time.perf_counter()
        durations.append(now - before)
        marks.append((progress.tokens, progress.loader_seconds))
        before = now
        if len(durations) > warming and any(trainer.group.gathered(now - started >= seconds, "the end of a test")):
            break
    (tokens, waited), (all_tokens, all_waited) = marks[warming - 1], marks[-1]
    warm, measured = durations[:warming], durations[warming:]
    return Speed(
        step_seconds=statistics.fmean(measured),
        median_seconds=statistics.median(measured),
        step_tokens=(all_tokens - tokens) / len(measured),
        steps=len(measured),
        layout_seconds=waited,
        warming_seconds=max(0.0, sum(warm) - waited - warming * statistics.median(measured)),
        loader_share=(all_waited - waited) / sum(measured),
        memory=peak_memory(trainer.processor),
    )


def loader_speed(loader: Loader, *, pool_tokens: int, seconds: float) -> float:
    """Return the tokens a second that a loader gives by itself: the ceiling of training.

    Laying out a pool, which the first step waits for, counts in proportion to the pool's `pool_tokens`.
    """
    started = time.perf_counter()
    steps = loader.steps(Cursor())
    next(steps)
    begun = time.perf_counter()
    tokens = 0
    while not tokens or time.perf_counter() - begun < seconds:
        tokens += sum(batch.size for batch in next(steps).batches)
    each = (time.perf_counter() - begun) / tokens
    return 1 / (each + (begun - started) / pool_tokens)


def reset_memory(processor: Processor) -> None:
    """Forget the peak of memory so far, where the system can (CUDA, Linux); elsewhere it stays that of the process."""
    if processor.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(processor.device)
        return
    with contextlib.suppress(OSError):
        (PROCESS / "clear_refs").write_text("5")


def peak_memory(processor: Processor) -> int:
    """Return the most bytes in use since `reset_memory`: of the GPU's memory, or of the process's on a CPU."""
    if processor.device.type == "cuda":
        return torch.cuda.max_memory_allocated(processor.device)
    return _of_process("VmHWM")


def resident_memory() -> int:
    """Return the bytes of memory that this process holds now, or at its peak where the system does not tell."""
    return _of_process("VmRSS")


def _of_process(what: str) -> int:
    """Return the bytes beside `what` in the system's account of this process, or its peak where there is no such line.

    Linux starts it anew when the peak is reset; the figure of getrusage may come from the program that the process
    ran before this one, and cannot be forgotten.
    """
    with contextlib.suppress(OSError):
        if found := re.search(rf"^{what}:\s+(\d+) kB", (PROCESS / "status").read_text(), re.MULTILINE):
            return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _line(first: Speed, second: Speed, *, sizes: tuple[int, int, int]) -> Speed:
    """Return the speed of steps of sizes[2] sequences, from those of sizes[0] and sizes[1].

    The line keeps between two bounds, however much the measurements scatter: a step with more sequences takes longer by
    half their share at least, and at most in proportion to them.
    """
    small, larger, whole = sizes

    def at_whole(one: float, two: float) -> float:
        slope = (two - one) / (larger - small)
        return two + min(max(slope, two / larger / 2), two / larger) * (whole - larger)

    step = at_whole(first.median_seconds, second.median_seconds)
    memory_slope = max(0.0, (second.memory - first.memory) / (larger - small))
    return Speed(
        step_seconds=step,
        median_seconds=step,
        step_tokens=second.step_tokens * whole / larger,
        steps=first.steps + second.steps,
        layout_seconds=min(first.layout_seconds, second.layout_seconds),
        warming_seconds=first.warming_seconds,
        loader_share=second.loader_share,
        memory=math.ceil(second.memory + memory_slope * (whole - larger)),
        extrapolated=True,
    )
