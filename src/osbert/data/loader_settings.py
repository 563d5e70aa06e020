"""The settings of the loader of pretraining: batches, passes, pools, held-out text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNTRIED = 4_096
"""Most tokens in one pass while `micro_tokens` is auto and no number has been chosen for it yet."""


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """How the corpus is fed to the trainer."""

    batch: int = 256
    """Sequences in one optimiser step."""
    micro_tokens: int | Literal["auto"] = "auto"
    """Most tokens in one pass through the model; a step with more is split, with the same gradient up to rounding. 0:
    one pass per step. auto: on a CPU as many as take 1 GiB of activations, beyond which passes are hardly faster; on a
    GPU as many as fit into the free memory, up to 65,536. The run keeps this number."""
    pool: int = 2**20
    """Tokens of a pool, within which examples are shuffled and next-sentence partners are chosen."""
    held_out: float = 0.01
    """Fraction of the corpus that is held out for evaluation, at most one pool; 0 for none."""
    duplicates: int = 0
    """Static masking: sample the layouts and masks of this many epochs; later epochs repeat them in turn, each in a new
    order (dupe_factor of google-research/bert: 10). More epochs where a mixture needs them to read all of its
    text. 0 samples each epoch anew: dynamic masking."""
    workers: int = 0
    """Processes that prepare steps ahead of time, with the same result; 0 for a thread, which suffices on a CPU."""
    seed: int = 0
    """Seed of the order, the layout and the masks."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings out of range."""
        for name, least in (
            ("batch", 1),
            ("micro_tokens", 0),
            ("pool", 1),
            ("duplicates", 0),
            ("workers", 0),
            ("seed", 0),
        ):
            if (value := getattr(self, name)) != "auto" and value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out must be a fraction from 0 to below 1, not {self.held_out}")

    @property
    def pass_tokens(self) -> int:
        """Most tokens in one pass, 0 for no limit; UNTRIED as long as `micro_tokens` is auto."""
        return UNTRIED if self.micro_tokens == "auto" else self.micro_tokens
