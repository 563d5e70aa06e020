"""Compares model sizes: training speed on this machine, expected loss after a given time, memory and disk.

A few sizes are trained for some seconds. For the others the FLOPs per token are counted, and their FLOP/s are
interpolated between the measured sizes, linearly in the logarithms of FLOP/s and FLOPs per token.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from osbert.data.batch import Batch
from osbert.data.stages import first_steps
from osbert.errors import UserError
from osbert.models.contract import Learner, Sizes, StepSize, matrix_weights
from osbert.runs.pretrain.passes import ACTIVATION
from osbert.runs.pretrain.pretraining_run import disk_bytes
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.runs.pretrain.speed_test import SpeedTest, phases
from osbert_lab.planning.expected_loss import LossRange, predict_loss
from osbert_lab.planning.speed import flops_per_token, training_flops

Shapes = tuple[tuple[int, int], ...]
SIZES: dict[str, Shapes] = {
    "cpu": ((2, 128), (4, 128), (2, 256), (4, 256), (4, 512), (8, 512), (12, 768)),
    "cuda": ((4, 256), (4, 512), (8, 512), (6, 768), (12, 768), (24, 1024)),
}
"""Layers and width of the compared sizes, by kind of device: the published ones (Turc et al. 2019)."""
MEASURED: dict[str, Shapes] = {"cpu": ((2, 128), (4, 256), (4, 512)), "cuda": ((4, 256), (12, 768), (24, 1024))}
"""The sizes that are trained for some seconds."""
USABLE, BEGINNING = 0.9, 10.0
"""Fraction of the time that steps take, after BEGINNING seconds of start-up."""
BYTES = 16
"""Bytes of memory for each parameter: weight, gradient and two moments, 4 bytes each."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A size to compare: its plan, and numbers that follow from it.

    `weights`: parameters in the blocks' matrices. `flops`: for training on one token. `activations`: numbers per token
    that are kept for the backward pass.
    """

    reported: ClassVar[tuple[str, ...]] = ("name", "parameters")

    plan: PretrainPlan
    parameters: int
    weights: int
    flops: float
    activations: float

    @property
    def sizes(self) -> Sizes:
        """The model's settings."""
        return self.plan.settings.model

    @property
    def name(self) -> str:
        """A name such as "L4 H256": layers and width."""
        return f"L{self.sizes.layers} H{self.sizes.width}"

    @property
    def pass_tokens(self) -> float:
        """The most tokens in one pass through the model."""
        data = self.plan.settings.data
        step = data.batch * data.length
        return min(step, data.pass_tokens or step)


@dataclass(frozen=True, kw_only=True)
class SizeSample:
    """Measurements of a size: FLOP/s, and bytes of memory beyond those of the process without a model."""

    size: Size
    flops_per_second: float
    memory: float


@dataclass(frozen=True, kw_only=True)
class SizeLimits:
    """Limits for all sizes: `seconds`, the loader's tokens per second, bytes of the process without a model."""

    seconds: float
    loader: float
    process: float


@dataclass(frozen=True, kw_only=True)
class SizeEstimate:
    """Estimates for a size: speed, tokens and loss within the time; memory and disk in bytes."""

    size: Size
    measured: bool
    tokens_per_second: float
    tokens: float
    epochs: float
    memory: float
    disk: float
    loss: LossRange


def resize(plan: PretrainPlan, layers: int, width: int) -> PretrainPlan:
    """Return the plan with another size of the model.

    The learning rate is scaled by 1 / sqrt(width), rounded to two digits.
    """
    model, optimizer = plan.settings.model, plan.settings.optimizer
    if (layers, width) == (model.layers, model.width):
        return plan
    resized = model.resize(layers, width)
    if resized.width != model.width:
        rate = float(f"{optimizer.learning_rate * math.sqrt(model.width / resized.width):.2g}")
        optimizer = replace(optimizer, learning_rate=rate)
    settings = replace(plan.settings, model=resized, optimizer=optimizer)
    return replace(plan, settings=settings)


def candidates(plan: PretrainPlan, kind: str) -> list[Size]:
    """Return the sizes to compare on a kind of device, with the plan's own, sorted by FLOPs.

    Raises UserError for a family without blocks, by whose weights sizes are compared.
    """
    model = plan.settings.model
    shapes = {*SIZES[kind], (model.layers, model.width)}
    # A sequence of 512 tokens costs more a token than one of 128: the mean over the phases of the run.
    steps = [(first_steps(plan.loader(length=phase.length)), phase.fraction) for phase in phases(plan)]
    plans = {candidate.settings.model: candidate for shape in sorted(shapes) for candidate in [resize(plan, *shape)]}
    sizes = sorted((_count(candidate, steps) for candidate in plans.values()), key=lambda size: size.flops)
    if not sizes[0].weights:
        raise UserError(
            f"Sizes are compared by the weights in their blocks, but models of family = {model.family} have no "
            "blocks. Choose a size yourself; osbert bench measures how fast it trains.",
            code="invalid-setting",
        )
    return sizes


def measure(sizes: Iterable[Size], scratch: Path, *, seconds: float) -> list[SizeSample]:
    """Train the sizes for `seconds` seconds in total, larger ones for longer, and return the measurements."""
    sizes = list(sizes)
    parts = [1 + index for index in range(len(sizes))]
    samples = []
    for size, part in zip(sizes, parts, strict=True):
        test = SpeedTest(size.plan, scratch)
        speed = test.speed(size.plan.settings.data.length, seconds=seconds * part / sum(parts))
        flops = flops_per_token(test, size.plan.settings.data.length)
        memory = estimate_memory(size) if speed.extrapolated else speed.memory - test.memory_before
        samples.append(SizeSample(size=size, flops_per_second=flops * speed.tokens_per_second, memory=memory))
    return samples


def estimate(size: Size, samples: Sequence[SizeSample], limits: SizeLimits) -> SizeEstimate:
    """Return the estimates for a size within the limits."""
    plan = size.plan
    pace = min(flops_per_second(size, samples) / size.flops, limits.loader)
    tokens = pace * max(0.0, limits.seconds * USABLE - BEGINNING)
    distinct = plan.corpus.tokens * (1 - plan.settings.data.held_out)
    loss = predict_loss(
        weights=size.weights, tokens=tokens, corpus_tokens=distinct, unigram_entropy=plan.corpus.unigram_entropy
    )
    return SizeEstimate(
        size=size,
        measured=any(sample.size is size for sample in samples),
        tokens_per_second=pace,
        tokens=tokens,
        epochs=tokens / distinct,
        memory=limits.process + memory(size, samples),
        disk=disk_bytes(size.parameters, plan.settings.training),
        loss=loss,
    )


def flops_per_second(size: Size, samples: Sequence[SizeSample]) -> float:
    """Return the expected FLOP/s: log-log interpolation between measured sizes; beyond them, that of the nearest."""
    log_sizes = [math.log(sample.size.flops) for sample in samples]
    log_rates = [math.log(sample.flops_per_second) for sample in samples]
    return math.exp(float(np.interp(math.log(size.flops), log_sizes, log_rates)))


def memory(size: Size, samples: Sequence[SizeSample]) -> float:
    """Return the bytes for training a size, beyond the process itself: measured, or extrapolated."""
    for sample in samples:
        if sample.size is size:
            return sample.memory
    # Bytes per activation of each sample, after its parameters are subtracted; the median is robust to an outlier.
    each = [
        (sample.memory - BYTES * sample.size.parameters) / (sample.size.pass_tokens * sample.size.activations)
        for sample in samples
    ]
    return BYTES * size.parameters + statistics.median(each) * size.pass_tokens * size.activations


def estimate_memory(size: Size, *, half: bool = False) -> float:
    """Return the counted bytes for training a size; `half`: activations in 16 bits."""
    return BYTES * size.parameters + ACTIVATION / (1 + half) * size.pass_tokens * size.activations


def _count(plan: PretrainPlan, steps: Sequence[tuple[Sequence[Sequence[Batch]], float]]) -> Size:
    """Return the size of a plan. `steps`: for each phase, a step of each objective, and the phase's fraction."""
    model = plan.settings.model
    backbone = model.empty()
    learner = Learner(backbone, {name: objective.head(backbone) for name, objective in plan.objectives.items()})
    samples = [([StepSize.of(learner, batches) for batches in phase], fraction) for phase, fraction in steps]
    flops = sum(
        fraction * sum(training_flops(learner, size) for size in sizes) / sum(size.tokens for size in sizes)
        for sizes, fraction in samples
    )
    scored = [
        name
        for objective in plan.objectives.values()
        for name, answers in objective.losses().items()
        if answers == "pieces"
    ]
    length = plan.settings.data.length
    # With a curriculum the objective that scores most decides how much memory is needed.
    pieces = statistics.fmean(
        max(sum(size.labels.get(name, 0) for name in scored) / size.tokens for size in sizes) for sizes, _ in samples
    )
    return Size(
        plan=plan,
        parameters=sum(weight.numel() for weight in learner.parameters()),
        weights=sum(matrix_weights(block) for block in {*backbone.stack[1:]}),
        flops=flops,
        activations=sum(
            sizes.layers * sizes.activations(length)
            for sizes in (model, *(companion.backbone.architecture for companion in learner.companions.values()))
        )
        + 3 * pieces * model.vocabulary,
    )
