"""The settings of training and their choices. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["auto", "fp32", "bf16"]
Compile = Literal["auto", "yes", "no"]
Spread = Literal["ddp", "fsdp"]
Writing = Literal["auto", "foreground", "background"]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Length, device and precision of training, and how often to log, evaluate and save."""

    steps: int = 1_000_000
    """Total number of optimiser steps."""
    precision: Precision = "auto"
    """Precision of matrix products; auto is bf16 if the processor has instructions for it."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto is a GPU if there is one."""
    compile: Compile = "auto"
    """Whether layers are compiled by torch.compile, which takes a minute at the start; auto is yes on a GPU."""
    seed: int = 0
    """Seed of the initial weights and of dropout."""
    log_every: int = 100
    """Steps between two lines of metrics.jsonl and of progress."""
    checkpoint_every: int = 1000
    """Steps between two checkpoints; 0 for none."""
    evaluate_every: int = 1000
    """Steps between two evaluations on the held-out batches; 0 for the end only."""
    keep: int = 2
    """Number of newest checkpoints to keep."""
    checkpoint_writing: Writing = "auto"
    """Whether training waits for a checkpoint (foreground) or goes on while a copy of it is written (background), which
    takes 12 bytes of main memory a parameter; auto is background on a GPU. The last one is always waited for."""
    models_every: int = 0
    """Steps between two models that pretraining saves in models/step-N/, as usable as the final one; 0 for none."""
    track: tuple[str, ...] = ()
    """Programs that get the figures of metrics.jsonl, separated by commas: tensorboard, mlflow, wandb."""
    parallel: Spread = "ddp"
    """With several processes (torchrun): whether each has all weights (ddp) or a shard of each weight (fsdp)."""

    def __post_init__(self) -> None:
        least_values = dict.fromkeys(("steps", "log_every", "keep"), 1)
        least_values |= dict.fromkeys(("seed", "checkpoint_every", "evaluate_every", "models_every"), 0)
        for name, least in least_values.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.seed >= 2**63:  # torch's own limit is 2**64, and parts of a model are drawn from the seeds after it
            raise ValueError(f"seed must be below {2**63}, not {self.seed}")
