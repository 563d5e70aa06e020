"""The stage of gpu.py that attends: torch's flex attention beside the kernels of kernels.py, in turns, in bf16.

Flat tokens of many sequences with heads as BERT BASE has them. "flex" has a mask of blocks by the number of the
sequence, made for each batch as training would have to; "varlen" is on GPUs alone. The distance is that from
`reference`, the largest of any value. Passes forward and back on a GPU, forward alone on the CPU, where flex has no way
back. The first pass of a side, which compiles, is timed by itself.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from osbert.models.transformer.kernels import reference, sdpa
from osbert.models.transformer.kernels_cuda import varlen
from osbert.models.transformer.layout import Layout

if TYPE_CHECKING:
    from gpu import Account

HEADS, WIDTH, TOKENS, ROUNDS, PASSES = 12, 64, 32_768, 5, 10
LEAST = 30.0
"""No length is begun with fewer seconds left."""

Attend = Callable[..., Tensor]


def measure(account: Account, chosen: argparse.Namespace) -> None:
    """Measure sequences of many lengths up to each longest one."""
    if not importlib.util.find_spec("torch.nn.attention.flex_attention"):
        account.add(["this torch has no flex attention", *[""] * 4], flex=False)
        return
    for longest, tokens in [(16, 64)] if chosen.small else [(128, TOKENS), (512, TOKENS)]:
        if account.clock.left < LEAST and not (chosen.small and account.clock.left):
            account.leave_out(f"lengths up to {longest}")
            continue
        layout = make_layout(longest, tokens, chosen.device)
        kernels: dict[str, Attend] = {"sdpa": sdpa, "flex": flex_kernel(compiled=not chosen.small)}
        if chosen.device == "cuda":
            kernels = {"varlen": varlen, **kernels}
        compare(account, longest, layout, kernels)


def make_layout(longest: int, tokens: int, device: str) -> Layout:
    """Return the layout of sequences of a quarter of `longest` and more."""
    torch.manual_seed(0)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        lengths.append(min(int(torch.randint(longest // 4, longest + 1, ())), tokens - sum(lengths)))
    bounds = functional.pad(torch.tensor(lengths).cumsum(0), (1, 0)).int()
    positions = torch.cat([torch.arange(length) for length in lengths])
    return Layout(lengths=tuple(lengths), bounds=bounds.to(device), positions=positions.to(device))


def flex_kernel(*, compiled: bool) -> Attend:
    """Return flex attention with the signature of a kernel."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    attend: Any = torch.compile(flex_attention) if compiled else flex_attention

    def flex(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Tensor:
        sizes = torch.tensor(layout.lengths, device=query.device)
        sequence = torch.arange(len(sizes), device=query.device).repeat_interleave(sizes)
        same = create_block_mask(
            lambda b, h, q, k: sequence[q] == sequence[k], None, None, len(query), len(query), device=str(query.device)
        )
        q, k, v = (part.transpose(0, 1)[None] for part in (query, key, value))  # (1, H, N, K)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is slow without torch.compile
            mixed: Tensor = attend(q, k, v, block_mask=same)
        return mixed[0].transpose(0, 1)

    return flex


def compare(account: Account, longest: int, layout: Layout, kernels: dict[str, Attend]) -> None:
    """Let the kernels take turns; one that fails costs no other."""
    device = layout.bounds.device
    shape = (3, len(layout.positions), HEADS, WIDTH)
    given = torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=device.type == "cuda")
    wanted = reference(*given.detach().float(), layout)
    first: dict[str, float] = {}
    apart: dict[str, float] = {}
    seconds: dict[str, list[float]] = {}
    for name, kernel in kernels.items():
        try:
            first[name], found = timed(kernel, given, layout, passes=1)
            apart[name] = float((found.detach().float() - wanted).abs().max())
        except Exception as error:
            account.add(kernel=name, longest=longest, error=f"{longest}, {name}: {type(error).__name__}: {error}")
    for _ in range(ROUNDS):
        for name in apart:
            if account.clock.left or name not in seconds:
                seconds.setdefault(name, []).append(timed(kernels[name], given, layout, passes=PASSES)[0] / PASSES)
    for name, taken in seconds.items():
        median = statistics.median(taken)
        row = [f"{longest}", name, f"{1000 * median:.2f}", f"{first[name]:.1f}", f"{apart[name]:.4f}"]
        account.add(row, kernel=name, longest=longest, seconds=taken, first=first[name], distance=apart[name])


def timed(kernel: Attend, given: Tensor, layout: Layout, *, passes: int) -> tuple[float, Tensor]:
    """Return the seconds of some passes, and what the last one gave."""
    begun = time.perf_counter()
    for _ in range(passes):
        found = kernel(*given, layout)
        if given.requires_grad:
            given.grad = None
            found.sum().backward()
    if given.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begun, found
