"""Model FLOP utilisation: the exact FLOPs of a training step, the peak FLOP/s of a processor, the loader alone."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import torch

from osbert.data.stages import first_steps
from osbert.data.step import Cursor, Loader
from osbert.models.contract import Learner, StepSize
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.runs.pretrain.speed_test import SpeedTest, endless, turns
from osbert.training.processor import Processor

FORMULA = (
    "FLOPs of a step = 3 x (2 N W - 2 (N - R) (2 D^2 + 2 D F) + 4 (P (L - 1) + Q) D + 2 M (D^2 + D V) + 2 B D^2 + "
    "heads), a product of two numbers and its sum being two. N tokens, B sequences, P the sum over sequences of their "
    "length squared, M masked positions, R the tokens whose last states are read (masked ones and [CLS]), Q the sum "
    "over sequences of length times tokens read; in a local layer P is of the tokens within the window; with "
    "disentangled positions the 4 before P is 12, with distances 8, or 6 where tokens look left; "
    "L layers, D width, F feed-forward width, V vocabulary; W weights in "
    "the layers' matrices (4 D^2 + 2 D F a layer in BERT; those that layers share count for each, those that distances "
    "alone pass for none); the pooler is 2 B D^2, other heads 2 x labels x weights (next sentence: 4 B D). A generator "
    "that is trained beside counts likewise. The 3: forwards, and backwards once for the inputs and once for the "
    "weights. Not counted: look-ups, norms, softmax, activations, dropout, the optimiser, and what a kernel computes a "
    "second time."
)
"""The formula of `training_flops`, as a text for users."""

PEAKS = {
    "B200": 2250e12,
    "GH200": 989e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "A30": 165e12,
    "A10": 125e12,
    "A40": 149.7e12,
    "RTX A6000": 154.8e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165.2e12,
    "RTX 3090": 71e12,
}
"""FLOP/s of bf16 products with sums in float32, without sparsity, by a part of the device's name (NVIDIA's data
sheets)."""

SIDE = {"cpu": 1536, "cuda": 8192}
"""Rows of the square matrices whose product measures the peak, by type of device."""
MEASURING = 0.5
"""Seconds of measuring a peak."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The peak FLOP/s of a processor, and the source of the figure."""

    flops: float
    source: str


def training_flops(learner: Learner, size: StepSize) -> int:
    """Return the FLOPs of training `learner` on a step of some size, by FORMULA; its weights may be on "meta"."""
    heads = ((head, size.labels.get(name, 0)) for name, head in learner.heads.items())
    main_flops = 3 * (learner.backbone.flops(size) + sum(head.flops(labels) for head, labels in heads))
    return main_flops + sum(
        training_flops(companion, size.companions[name]) for name, companion in learner.companions.items()
    )


def flops_per_token(test: SpeedTest, length: int) -> float:
    """Return the FLOPs of training on one token, as a mean over a step of each objective."""
    steps = first_steps(test.loader(length, batch=test.plan.settings.data.batch))
    size = StepSize.of(test.learner, itertools.chain(*steps))
    return training_flops(test.learner, size) / size.tokens


def loader_speed(loader: Loader, *, pool_tokens: int, seconds: float, turns: int = 1) -> float:
    """Return the tokens per second of a loader alone, an upper bound of training.

    The time to lay out a pool, part of each of the first `turns` steps, is spread over the pool's `pool_tokens`.
    """
    started = time.perf_counter()
    steps = loader.steps(Cursor())
    for _ in range(turns):
        next(steps)
    begun = time.perf_counter()
    tokens = 0
    while not tokens or time.perf_counter() - begun < seconds:
        tokens += sum(batch.size for _ in range(turns) for batch in next(steps).batches)
    each = (time.perf_counter() - begun) / tokens
    return 1 / (each + (begun - started) / (turns * pool_tokens))


def loader_ceiling(plan: PretrainPlan, length: int, *, seconds: float) -> float:
    """Return the tokens per second of the loader alone, with full pools: an upper bound for training."""
    pool = min(plan.settings.data.pool, plan.corpus.tokens)
    return loader_speed(endless(plan, length), pool_tokens=pool, seconds=seconds, turns=turns(plan))


def peak(processor: Processor) -> Peak:
    """Return the peak of a processor: from the data sheet for bf16 on a known GPU, else measured in half a second."""
    if processor.device.type == "cuda" and processor.precision == "bf16":
        name = torch.cuda.get_device_name(processor.device)
        known = look_up_peak(name)
        if known is not None:
            return Peak(flops=known, source=f"data sheet of {name}, bf16 without sparsity")
    return measure_peak(processor)


def look_up_peak(name: str) -> float | None:
    """Return the bf16 FLOP/s of the longest entry of PEAKS that a GPU's name contains; None if there is none."""
    words = f" {name.replace('-', ' ')} "  # an A4000 is no A40
    names = [part for part in PEAKS if f" {part} " in words]
    return PEAKS[max(names, key=len)] if names else None


def measure_peak(processor: Processor) -> Peak:
    """Measure the fastest of some products of two large square matrices, in the processor's precision."""
    side = SIDE.get(processor.device.type, min(SIDE.values()))
    kind = torch.bfloat16 if processor.precision == "bf16" else torch.float32
    left, right = (torch.ones(side, side, dtype=kind, device=processor.device) for _ in range(2))
    started = time.perf_counter()
    best = _product_seconds(left, right)  # the first one also warms up
    while time.perf_counter() - started < MEASURING:
        best = min(best, _product_seconds(left, right))
    threads = f", {torch.get_num_threads()} threads" if processor.device.type == "cpu" else ""
    # A product of two n x n matrices takes n^3 multiplications and n^3 additions.
    return Peak(flops=2 * side**3 / best, source=f"measured: {processor} matrices of {side:,} x {side:,}{threads}")


def _product_seconds(left: torch.Tensor, right: torch.Tensor) -> float:
    started = time.perf_counter()
    product = left @ right
    product[0, 0].item()  # waits for a GPU
    return time.perf_counter() - started
