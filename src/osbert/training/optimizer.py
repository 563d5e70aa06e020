"""AdamW as in BERT's training, or Muon, and the schedule of the learning rate.

Weight decay applies to matrices only, and gradients are clipped by the norm of the whole gradient. The learning rate is
a pure function of the step: linear warm-up, then a decay to 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Schedule = Literal["linear", "cosine", "constant", "trapezoid"]
MUON_RATE = 0.02
"""Keller Jordan's. The root mean square of an orthogonal (R, C) update is 1 / sqrt(max(R, C)); AdamW's is near 1."""
DECAY = 0.1
LATE = 1e30
"""A step count at which the bias corrections, 1 - beta ** step, are exactly 1."""


def rate_factor(step: float, *, steps: int, warmup: float, schedule: Schedule, decay: float = 0.0) -> float:
    """Return the learning-rate factor, 0 to 1, for update `step` of `steps`, counted from 0.

    It rises to 1 in round(warmup * steps) equal steps, then falls to 0, which it would reach at update `steps`, so that
    no update has a factor of 0. "constant" stays at 1.

    "trapezoid" stays at 1 until the last round(decay * steps) updates, in which it is 1 - sqrt(x), x from 0 to 1
    (Hägele et al. 2024, arXiv 2405.18392, section 3.2): until then, a run can be continued with more steps.

    >>> [round(rate_factor(step, steps=10, warmup=0.2, schedule="trapezoid", decay=0.4), 2) for step in range(10)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.55, 0.37, 0.23, 0.11]
    """
    climb = round(warmup * steps)
    if step < climb:
        return (step + 1) / climb
    if schedule == "constant":
        return 1.0
    if schedule == "trapezoid":
        fall = round(decay * steps)
        # 1 at the first falling update, so that this one is already below 1 and the last one above 0.
        into = step - (steps - fall) + 1
        return 1.0 if into < 1 else 1.0 - math.sqrt(into / (fall + 1))
    gone = (step - climb) / (steps - climb)  # 0 at the peak, below 1 at the last update
    return 1.0 - gone if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * gone))


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """The optimiser and its schedule. The defaults are BERT's (section A.2)."""

    method: Literal["adamw", "muon"] = "adamw"
    """adamw for all weights, or muon for the matrices of the layers and adamw for the others."""
    learning_rate: float = 1e-4
    """Peak learning rate, after the warm-up."""
    muon_rate: float = MUON_RATE
    """Peak learning rate of the matrices that muon updates."""
    muon_iterations: int = 5
    """Iterations of muon's polynomial: 5, as published, or 3 with other coefficients, which take three fifths of its
    work and bring small singular values less close to 1."""
    beta1: float = 0.9
    """Decay of the running mean of the gradients."""
    beta2: float = 0.999
    """Decay of the running mean of the squared gradients."""
    epsilon: float = 1e-6
    """Added to the root of the mean of squares, against division by 0."""
    bias_correction: bool = True
    """Whether AdamW corrects the bias of running means that start at 0; google-research/bert does not."""
    weight_decay: float = 0.01
    """Decoupled weight decay, multiplied by the learning rate; none for biases and normalisations."""
    clip: float = 1.0
    """Largest norm of the whole gradient; a larger gradient is scaled down to it. 0 for no limit."""
    warmup: float = 0.01
    """Fraction of the steps in which the learning rate rises; BERT's 10,000 of 1,000,000 are 0.01."""
    schedule: Schedule = "linear"
    """How the learning rate falls to 0 after the warm-up; constant stays at the peak, trapezoid until `decay`."""
    decay: float = DECAY
    """With the schedule trapezoid: fraction of the steps, at the end, in which the learning rate falls."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "muon_rate", "epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("beta1", "beta2", "warmup", "decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}")
        for name in ("weight_decay", "clip"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.schedule == "trapezoid" and self.warmup + self.decay > 1:
            raise ValueError(
                f"warmup and decay are fractions of the steps, so their sum must be at most 1, not {self.warmup} + "
                f"{self.decay}"
            )
        if self.muon_iterations not in (3, 5):
            raise ValueError(f"muon_iterations must be 3 or 5, not {self.muon_iterations}")
        # Settings that have no effect beside another one.
        for name, default, setting, choice in (
            ("decay", DECAY, "schedule", "trapezoid"),
            ("muon_rate", MUON_RATE, "method", "muon"),
            ("muon_iterations", 5, "method", "muon"),
        ):
            if getattr(self, setting) != choice and (value := getattr(self, name)) != default:
                raise ValueError(
                    f'{name} = {value} does nothing with {setting} = "{getattr(self, setting)}": leave it out, or '
                    f"choose {choice}"
                )

    def build(self, learner: nn.Module) -> torch.optim.AdamW:
        """Return an optimiser of the learner's trainable weights: decay for matrices, none for vectors (biases, norms).

        Each parameter group has its peak learning rate as "peak".
        """
        import torch

        from osbert.training.adamw import PlainAdamW  # here and below: it takes seconds, and settings are read where
        from osbert.training.muon import Muon  # nothing is trained

        stacked = _matrices(learner) if self.method == "muon" else {}
        weights = [weight for weight in learner.parameters() if weight.requires_grad]
        others = [weight for weight in weights if weight not in stacked]
        groups: list[dict[str, Any]] = [
            {"params": [weight for weight in others if weight.ndim >= 2], "weight_decay": self.weight_decay},
            {"params": [weight for weight in others if weight.ndim < 2], "weight_decay": 0.0},
        ]
        # One group for each number of stacked matrices, since Muon splits all weights of a group alike.
        for parts in sorted({*stacked.values()}):
            chosen = [weight for weight in weights if stacked.get(weight) == parts]
            muon_options = {"lr": self.muon_rate, "parts": parts, "iterations": self.muon_iterations}
            groups.append({"params": chosen, "weight_decay": self.weight_decay, **muon_options})
        optimizer = (Muon if stacked else PlainAdamW)(
            [group for group in groups if group["params"]],
            lr=self.learning_rate,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            fused=True,
        )
        for group in optimizer.param_groups:
            # The trainer sets "lr" to peak times the schedule's factor before each step.
            group["peak"] = group["lr"]
        for weight in others if not self.bias_correction else ():
            # A step count at which AdamW's bias correction is 1.
            optimizer.state[weight] = {
                "step": torch.tensor(LATE, dtype=torch.float32, device=weight.device),
                "exp_avg": torch.zeros_like(weight),
                "exp_avg_sq": torch.zeros_like(weight),
            }
        return optimizer

    def rate_factor(self, step: float, steps: int) -> float:
        """Return the learning-rate factor, 0 to 1, for update `step` of `steps`, counted from 0."""
        return rate_factor(step, steps=steps, warmup=self.warmup, schedule=self.schedule, decay=self.decay)


def _matrices(learner: nn.Module) -> dict[nn.Parameter, int]:
    """Return the trainable matrices in the learner's layers, and how many matrices are stacked in each."""
    inside = {
        weight: 1
        for name, weight in learner.named_parameters()
        if weight.requires_grad and weight.ndim == 2 and "blocks" in name.split(".")
    }
    for module in learner.modules():
        # Modules name their stacked weights, such as queries, keys and values, in `parts`.
        for name, parts in getattr(module, "parts", {}).items():
            if (weight := module.get_parameter(name)) in inside:
                inside[weight] = parts
    return inside


def limit(weights: list[nn.Parameter], clip: float) -> Tensor:
    """Clip the norm of all gradients together to `clip` by scaling them down (0: leave them).

    Returns the norm () before clipping. There is no GPU synchronisation.
    """
    import torch

    from osbert.training.distributed import is_dealt

    gradients = []
    for weight in weights:
        if (gradient := weight.grad) is None:
            continue
        if gradient.is_sparse:
            weight.grad = gradient.coalesce()  # several passes may have read one row
            gradient = weight.grad.values()
        # On a CPU torch computes the norms of rows in all threads, that of a matrix in one. A gradient that is dealt
        # over processes is of another type.
        if type(gradient) is torch.Tensor and gradient.device.type == "cpu" and gradient.dim() > 1:
            gradient = torch.linalg.vector_norm(gradient, dim=-1)
        gradients.append(gradient)
    norm = torch.nn.utils.get_total_norm(gradients)
    if is_dealt(norm):
        norm = norm.full_tensor()  # over the shares that each process has of every gradient
    # On a CPU the norm is known here, which saves a pass over all gradients if torch would multiply them by 1.
    if clip and not (norm.device.type == "cpu" and norm + 1e-6 <= clip):
        torch.nn.utils.clip_grads_with_norm_(weights, clip, norm)
    return norm
