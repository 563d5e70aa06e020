"""Measures the speed of training in a few seconds, with the trainer and the loader of a real run."""

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

from osbert.training.processor import Processor
from osbert.training.trainer import Trainer

PROCESS = Path("/proc/self")
"""Linux's files about this process: its memory, and a file that resets the peak."""
SMALL = 16
"""The first measurement uses batch / SMALL sequences, in case a whole step takes minutes."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Measurements of some seconds of training.

    `step_seconds`: the mean, for estimates; `median_seconds` is robust against single slow steps. `step_tokens`: mean
    tokens of a step. `layout_seconds`: the wait for the loader's first pool. `warming_seconds`: further time of the
    first steps beyond that of later ones. `loader_share`: fraction of the time spent waiting for the loader. `memory`:
    peak bytes. `extrapolated`: whole steps were too slow, so the time is extrapolated from two smaller sizes.
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
        """Return tokens of training per second."""
        return self.step_tokens / self.step_seconds


def probe(begin: Callable[[int], Trainer], *, batch: int, seconds: float, turns: int = 1) -> Speed:
    """Measure the speed of steps of `batch` sequences in about `seconds` seconds.

    `begin(size)` returns a new trainer whose steps have `size` sequences; its weights are discarded. `turns`: steps
    after which kinds of steps repeat. Small steps are measured first. If a warm-up and two rounds of whole steps would
    not fit in the time, it is extrapolated from two smaller sizes.
    """
    small = max(1, batch // SMALL)
    trainer = begin(small)
    if small == batch:
        return train_for(trainer, seconds, turns=turns)
    started = time.perf_counter()
    first = train_for(trainer, seconds / 4, turns=turns)
    rounds = 3 * turns
    # Processes that train together must decide alike.
    seen = trainer.group.gather((first.step_seconds, time.perf_counter() - started), "seconds of a small step")
    step, taken = map(max, zip(*seen))
    left = seconds - taken
    if rounds * step * batch / small < left:
        return train_for(begin(batch), left, turns=turns)
    # As large as three rounds of it would fit.
    larger = 4 * small if 4 * rounds * step < left else 2 * small
    second = train_for(begin(larger), left, turns=turns)
    return _line(first, second, sizes=(small, larger, batch))


def train_for(trainer: Trainer, seconds: float, *, turns: int = 1) -> Speed:
    """Train for some seconds, at least one round after the warm-up of one, or of three on a GPU.

    A round is `turns` steps. Only whole rounds count, so that each kind of steps counts alike.
    """
    warming = turns * (3 if trainer.processor.device.type == "cuda" else 1)
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
        if len(durations) <= warming or len(durations) % turns:
            continue
        if any(trainer.group.gather(now - started >= seconds, "the end of a test")):
            break
    # Counters at the end of the warm-up and at the end; their differences exclude the warm-up.
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


def reset_memory(processor: Processor) -> None:
    """Reset the peak of memory on CUDA and Linux. Elsewhere it remains that of the process so far."""
    if processor.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(processor.device)
        return
    with contextlib.suppress(OSError):
        # 5 resets VmHWM (proc(5)).
        (PROCESS / "clear_refs").write_text("5")


def peak_memory(processor: Processor) -> int:
    """Return the peak of memory in bytes since `reset_memory`: of the GPU, or of the process on a CPU."""
    if processor.device.type == "cuda":
        return torch.cuda.max_memory_allocated(processor.device)
    return _of_process("VmHWM")


def resident_memory() -> int:
    """Return the bytes of memory that this process uses now, or its peak if the system does not report that."""
    return _of_process("VmRSS")


def _of_process(what: str) -> int:
    """Return the field `what` of /proc/self/status in bytes, or the peak from getrusage if there is none.

    Only the former can be reset; the latter may even stem from the program that the process ran before exec.
    """
    with contextlib.suppress(OSError):
        if match := re.search(rf"^{what}:\s+(\d+) kB", (PROCESS / "status").read_text(), re.MULTILINE):
            return int(match[1]) * 1024
    # ru_maxrss is in bytes on macOS, in kB on Linux.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _line(first: Speed, second: Speed, *, sizes: tuple[int, int, int]) -> Speed:
    """Extrapolate the speed of steps of sizes[2] sequences linearly from sizes[0] and sizes[1].

    The slope is bounded, because measurements scatter: time grows at most in proportion to the sequences, and at least
    half as fast.
    """
    small, larger, whole = sizes

    def at_whole(small_value: float, larger_value: float) -> float:
        slope = (larger_value - small_value) / (larger - small)
        return larger_value + min(max(slope, larger_value / larger / 2), larger_value / larger) * (whole - larger)

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
