"""How much arithmetic a training step is, exactly, and how much a processor can do at best: the share of its peak."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from osbert.data.batch import Batch
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.transformer.block import Block
from osbert.training.processor import Processor

FORMULA = (
    "FLOPs of a step = 3 x (2 N W - 2 (N - R) (2 D^2 + 2 D F) + 4 (P (L - 1) + Q) D + 2 M (D^2 + D V) + 2 B D^2 + "
    "heads), a product of two numbers and its sum being two. N tokens, B sequences, P the sum over sequences of their "
    "length squared, M masked positions, R the tokens whose last states are read (masked ones and [CLS]), Q the sum "
    "over sequences of length times tokens read; L layers, D width, F "
    "feed-forward width, V vocabulary; W weights in the blocks' matrices (4 D^2 + 2 D F a layer in BERT); the pooler "
    "is 2 B D^2, other heads 2 x labels x weights (next sentence: 4 B D). The 3: forwards, and backwards once for the "
    "inputs and once for the weights. Not counted: look-ups, norms, softmax, activations, dropout, the optimiser, "
    "and what a kernel computes a second time."
)
"""What `training_flops` counts, for people."""

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
"""FLOP/s of bf16 products with sums in float32, without sparsity, by what a device's name holds (NVIDIA's data
sheets)."""

SIDE = {"cpu": 1536, "cuda": 8192}
"""Rows of the matrices whose product measures a peak, by kind of device."""
MEASURING = 0.5
"""Seconds for which a peak is measured."""


@dataclass(frozen=True, kw_only=True)
class StepSize:
    """What a step's arithmetic follows from.

    `tokens` N; `pairs` P: the sum of squared lengths; `sequences` B; `labels`: how many, by objective; `read` R: the
    tokens whose last states are read, where the model makes use of that (`Transformer.readable`); `read_pairs` Q: the
    sum of lengths times tokens read.
    """

    tokens: int
    pairs: int
    sequences: int
    labels: Mapping[str, int]
    read: int
    read_pairs: int

    @classmethod
    def of(cls, learner: Learner, batches: Iterable[Batch]) -> StepSize:
        """Return the size of some batches together, which may be several steps, for a learner."""
        sparse = all(head.sparse for head in learner.heads.values())
        read = read_pairs = 0
        lengths: list[int] = []
        labels: dict[str, int] = {}
        for batch in batches:
            lengths += batch.lengths
            few = learner.backbone.readable(batch) if sparse else None
            queries = batch.lengths if few is None else batch.reads
            read += sum(queries)
            read_pairs += sum(length * count for length, count in zip(batch.lengths, queries))
            for name, target in batch.targets.items():
                labels[name] = labels.get(name, 0) + len(target.labels)
        pairs = sum(length * length for length in lengths)
        return cls(
            tokens=sum(lengths), pairs=pairs, sequences=len(lengths), labels=labels, read=read, read_pairs=read_pairs
        )


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The most a processor does: FLOP/s, and where the figure is from."""

    flops: float
    source: str


def training_flops(learner: Learner, size: StepSize) -> int:
    """Return the FLOPs of training `learner` on a step of some size, as FORMULA says; its weights may be on "meta"."""
    backbone = learner.backbone
    sizes = backbone.architecture
    last: Block = backbone.blocks[-1]  # type: ignore[assignment]
    spared = matrix_weights(last) - matrix_weights(last.attention.inward) * 2 // 3  # keys and values are of all tokens
    forward = 2 * size.tokens * matrix_weights(backbone.blocks) - 2 * (size.tokens - size.read) * spared
    if backbone.recurrent is not None:
        forward += 2 * size.tokens * matrix_weights(backbone.recurrent)
    if backbone.embeddings.projection is not None:
        forward += 2 * size.tokens * matrix_weights(backbone.embeddings.projection)
    forward += 4 * (size.pairs * (sizes.layers - 1) + size.read_pairs) * sizes.width
    forward += 2 * size.sequences * matrix_weights(backbone.pooler)
    for name, head in learner.heads.items():
        weights = matrix_weights(head)
        if isinstance(head, MaskedLanguageHead):
            weights += (sizes.embedding or sizes.width) * sizes.vocabulary  # the product with the piece embeddings
        forward += 2 * size.labels.get(name, 0) * weights
    return 3 * forward


def matrix_weights(module: nn.Module) -> int:
    """Return how many weights of a module are in matrices."""
    return sum(weight.numel() for weight in module.parameters() if weight.ndim == 2)


def peak(processor: Processor) -> Peak:
    """Return what a processor can do: from the data sheet for bf16 on a known GPU, else measured in half a second."""
    if processor.device.type == "cuda" and processor.precision == "bf16":
        name = torch.cuda.get_device_name(processor.device)
        known = published_peak(name)
        if known is not None:
            return Peak(flops=known, source=f"data sheet of {name}, bf16 without sparsity")
    return measured_peak(processor)


def published_peak(name: str) -> float | None:
    """Return the bf16 FLOP/s of a GPU by its name, by the longest entry of PEAKS that the name holds; None for none."""
    words = f" {name.replace('-', ' ')} "  # an A4000 is no A40
    found = [part for part in PEAKS if f" {part} " in words]
    return PEAKS[max(found, key=len)] if found else None


def measured_peak(processor: Processor) -> Peak:
    """Return the fastest of some products of two large square matrices, in the processor's precision."""
    side = SIDE.get(processor.device.type, min(SIDE.values()))
    kind = torch.bfloat16 if processor.precision == "bf16" else torch.float32
    left, right = (torch.ones(side, side, dtype=kind, device=processor.device) for _ in range(2))
    started = time.perf_counter()
    best = _product_seconds(left, right)  # the first one also warms up
    while time.perf_counter() - started < MEASURING:
        best = min(best, _product_seconds(left, right))
    threads = f", {torch.get_num_threads()} threads" if processor.device.type == "cpu" else ""
    return Peak(flops=2 * side**3 / best, source=f"measured: {processor} matrices of {side:,} x {side:,}{threads}")


def _product_seconds(left: torch.Tensor, right: torch.Tensor) -> float:
    started = time.perf_counter()
    product = left @ right
    product[0, 0].item()  # waits for a GPU
    return time.perf_counter() - started
