"""AdamW as BERT was trained with it: decay on matrices only, one limit on the norm of the whole gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from osbert.training.schedules import Schedule, share


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """How gradients become weights. The defaults are BERT's (section A.2)."""

    learning_rate: float = 1e-4
    """Learning rate at its peak, after the warm-up."""
    beta1: float = 0.9
    """Memory of the mean of the gradients."""
    beta2: float = 0.999
    """Memory of the mean of their squares."""
    epsilon: float = 1e-6
    """Added to the root of the mean square."""
    weight_decay: float = 0.01
    """Share of a weight that decays in a step, times the learning rate; biases and normalisations are spared."""
    clip: float = 1.0
    """Largest norm of the whole gradient, a longer one is scaled down to it; 0 for no limit."""
    warmup: float = 0.01
    """Share of the steps in which the learning rate climbs; BERT's 10,000 of 1,000,000 are 0.01."""
    schedule: Schedule = "linear"
    """How the learning rate goes down to 0 after the warm-up; constant stays at the peak."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        for name in ("learning_rate", "epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("beta1", "beta2", "warmup"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to below 1, not {getattr(self, name)}")
        for name in ("weight_decay", "clip"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")

    def build(self, learner: nn.Module) -> torch.optim.AdamW:
        """Return an AdamW over the learner's trainable weights: matrices decay, vectors (biases, norms) do not."""
        weights = [weight for weight in learner.parameters() if weight.requires_grad]
        groups = [
            {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": self.weight_decay},
            {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=self.learning_rate,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            fused=True,
        )

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of update `step` of `steps`, counted from 0."""
        return self.learning_rate * share(step, steps=steps, warmup=self.warmup, schedule=self.schedule)


def limit(weights: list[nn.Parameter], clip: float) -> Tensor:
    """Scale the weights' gradients down so that their norm, taken over all of them, is at most `clip` (0: leave them).

    Returns the norm () that they had. Nothing here waits for a GPU.
    """
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
    if clip:
        torch.nn.utils.clip_grads_with_norm_(weights, clip, norm)
    return norm
