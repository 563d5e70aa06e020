"""The stages of gpu.py that pretrain: osbert beside transformers on one GPU, in turns, within a time."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import torch

from osbert_lab.planning.speed import FORMULA, look_up_peak
from pretraining_speed import SIZES, THEIRS, Case, Side, flops_a_token

if TYPE_CHECKING:
    from gpu import Account

TOKENS = {"base": 32_768, "large": 16_384}
"""About how many make a step, so that transformers in fp32, which keeps every score, fits beside the others."""
SECONDS, ROUNDS = 3.0, 5
TOGETHER = ("osbert", "sdpa bf16 compiled")
"""Sides that warm up beside each other: both compile, mostly on the CPU. The others follow one after the other."""
OTHERS = ("sdpa bf16", "default")
LEAST = 25.0
"""No side is started with fewer seconds left: it takes as many to import, to draw its examples and to warm up."""


def measure(account: Account, chosen: argparse.Namespace) -> None:
    """Measure a size at each length; each length has an equal share of the time that is left."""
    lengths = tuple(map(int, chosen.lengths.split(",")))
    size, lengths, tokens = ("L1H64", (16,), 128) if chosen.small else (chosen.stage, lengths, TOKENS[chosen.stage])
    for number, length in enumerate(lengths):
        case = Case(size=size, length=length, device=chosen.device, tokens=tokens)
        until = account.clock.spent + account.clock.left / (len(lengths) - number)
        with account.log.open("a", encoding="utf-8") as log:
            Comparison(account, case, until=until, groups=groups(chosen), log=log).run()


def groups(chosen: argparse.Namespace) -> list[tuple[str, ...]]:
    """Return the sides, in groups that warm up at the same time."""
    if chosen.small:
        return [("osbert",)]
    if chosen.sides:
        return [tuple(chosen.sides.split(","))]
    return [TOGETHER, *((name,) for name in OTHERS)]


class Comparison:
    """All sides of one case, until `until` seconds of the stage are spent."""

    def __init__(
        self, account: Account, case: Case, *, until: float, groups: Sequence[Sequence[str]], log: IO[str]
    ) -> None:
        self.account = account
        self.case = case
        self.until = until
        self.groups = groups
        self.small = case.size not in SIZES
        self.log = log
        self.flops = flops_a_token(case)
        self.peak = look_up_peak(torch.cuda.get_device_name()) if case.device == "cuda" else None
        self.kept: dict[str, dict[str, Any]] = {}

    @property
    def left(self) -> float:
        return max(0.0, self.until - self.account.clock.spent)

    def run(self) -> None:
        """Start the sides that there is time for, and take turns with them."""
        sides: list[Side] = []
        try:
            for names in self.groups:
                sides += self.start(names)
            for _ in range(1 if self.small else ROUNDS):
                self.turn(sides)
        finally:
            for side in sides:
                side.end()

    def start(self, names: Sequence[str]) -> list[Side]:
        """Start some sides beside each other; return those that got warm."""
        if self.left < LEAST and not (self.small and self.left):
            for name in names:
                self.account.leave_out(self.title(name))
            return []
        options = {"osbert": {}, **THEIRS}
        started = [Side(self.case, name, options[name], left=lambda: self.left, log=self.log) for name in names]
        warm = []
        for side in started:
            try:
                self.kept[side.name] = self.account.add(side=side.name, case=vars(self.case), warm=side.warm)
                warm.append(side)
            except RuntimeError as error:
                self.account.add(side=side.name, case=vars(self.case), error=f"{self.title(side.name)}: {error}")
                side.end()
        return warm

    def turn(self, sides: Sequence[Side]) -> None:
        """Take a round of every side if there is time for it, and bring the table up to date."""
        seconds = 0.05 if self.small else SECONDS
        for side in sides:
            # The first round counts more than the stage's end: it is what the time before was spent for.
            if side.process.poll() is None and (not side.rounds or self.left > 2 * seconds):
                side.left = lambda: max(self.left, 10 * seconds)
                try:
                    side.run(seconds)
                except RuntimeError as error:
                    self.account.add(side=side.name, case=vars(self.case), error=f"{self.title(side.name)}: {error}")
        ours = next((side for side in sides if side.name == "osbert" and side.rounds), None)
        for side in sides:
            if side.rounds:
                self.show(side, ours)

    def show(self, side: Side, ours: Side | None) -> None:
        """Bring a side's measurement and row up to date."""
        rate, memory = side.median("rate"), side.median("peak")
        ratio = share = None
        if ours:
            ratio = statistics.median(a["rate"] / b["rate"] for a, b in zip(ours.rounds, side.rounds))
        if self.peak:
            share = rate * self.flops / self.peak
        compiling = max(0.0, side.warm["warming"] - side.warm["single"])
        row = [
            *(f"{self.case.size}, {self.case.length}", side.name, f"{rate:,.0f}"),
            *(f"{ratio:.2f}" if ratio else "", f"{share:.1%}" if share else "", f"{memory:,.0f}", f"{compiling:.0f}"),
        ]
        figures = {"rate": rate, "memory_mb": memory, "osbert_over_it": ratio, "share_of_peak": share}
        facts = {"flops_a_token": self.flops, "formula": FORMULA, "peak_flops": self.peak, "rounds": side.rounds}
        self.account.change(self.kept[side.name], row, **figures, **facts, warming=compiling)

    def title(self, name: str) -> str:
        return f"{self.case.size}, {self.case.length}, {name}"
