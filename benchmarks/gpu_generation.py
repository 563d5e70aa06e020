"""The stage of gpu.py that writes: pieces a second beside transformers' generate on one GPU, in turns, in bf16.

The models have the shape of GPT-2 and random weights; both sides write the same number of pieces after the same prompts
(generation.py), greedily and with 4 beams, for 1 and for 32 texts. The first turn of each case is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from generation import made, ours, theirs, timed
from osbert.interop.folder import open_folder
from osbert_lab.writing.decoders import decoder_of

if TYPE_CHECKING:
    from gpu import Account

CASES = [(1, 1), (1, 4), (32, 1), (32, 4)]
"""Texts and beams."""
SIZES = {"layers": 12, "width": 768, "vocabulary": 50_257, "prompt": 64, "most": 64}
SMALL = {"layers": 1, "width": 64, "vocabulary": 100, "prompt": 4, "most": 3}
ROUNDS = 3
LEAST = 20.0
"""No case is begun with fewer seconds left."""

Write = Callable[[], list[list[int]]]


def measure(account: Account, chosen: argparse.Namespace) -> None:
    """Measure every case that there is time for."""
    sizes = argparse.Namespace(shape="gpt2", **(SMALL if chosen.small else SIZES))
    sides = None
    for rows, beams in [(2, 1), (1, 2)] if chosen.small else CASES:
        if account.clock.left < LEAST and not (chosen.small and account.clock.left):
            account.leave_out(f"{rows} texts, {beams} beams")
            continue
        sides = sides or make_sides(sizes, chosen.device)
        torch.manual_seed(rows)
        ids = torch.randint(1, sizes.vocabulary, (rows, sizes.prompt))
        try:
            compare(account, (rows, beams), *(side(ids, beams) for side in sides), rounds=1 if chosen.small else ROUNDS)
        except Exception as error:  # a case that fails costs no other
            account.add(rows=rows, beams=beams, error=f"{rows} texts, {beams} beams: {type(error).__name__}: {error}")


def make_sides(sizes: argparse.Namespace, device: str) -> tuple[Callable[[torch.Tensor, int], Write], ...]:
    """Return osbert's way to write and transformers', each with the same weights in bf16."""
    peer = made(sizes)
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        opened = open_folder(Path(folder))
        backbone, head = opened.backbone.eval().to(device), opened.heads["mlm"].eval().to(device)
    decoder = decoder_of(backbone, head)
    assert decoder is not None
    decoder = decoder.fresh("bf16")
    peer = peer.to(device, torch.bfloat16)
    return (
        lambda ids, beams: lambda: ours(decoder, ids, sizes.most, beams, reads=False),
        lambda ids, beams: lambda: theirs(peer, ids.to(device), sizes.most, beams),
    )


def compare(account: Account, case: tuple[int, int], one: Write, other: Write, *, rounds: int) -> None:
    """Let both sides of a case take turns; each ends with its pieces in main memory, so that the GPU has finished."""
    seconds: list[tuple[float, float]] = []
    for turn in range(rounds + 1):
        if turn > 1 and account.clock.left < 2 * sum(seconds[-1]):
            break
        (own, written), (their, expected) = timed(one), timed(other)
        if turn:
            seconds.append((own.clock, their.clock))
    rows, beams = case
    pieces = rows * len(written[0])
    rates = [pieces / statistics.median(taken) for taken in zip(*seconds, strict=True)]
    ratio = statistics.median(b / a for a, b in seconds)
    same = sum(left == right for left, right in zip(written, expected, strict=True))
    row = [str(rows), str(beams), *(f"{rate:,.0f}" for rate in rates), f"{ratio:.2f}", f"{same} of {rows}"]
    account.add(row, rows=rows, beams=beams, rates=rates, ratio=ratio, same=same, seconds=seconds)
