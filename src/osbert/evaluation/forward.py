"""Examples -> a head's outputs, in batches of equal token counts and in the order given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from osbert.data.batch import Batch, micro_batches
from osbert.data.example import Example
from osbert.models.contract import Learner

TOKENS = 4096
"""Most tokens in a batch: enough to fill two cores, little enough for their caches."""


def batches(examples: Sequence[Example], *, tokens: int = TOKENS) -> Iterator[Batch]:
    """Yield the examples without targets in batches of at most `tokens` tokens; `records` are places in `examples`."""
    numbered = [replace(example, record=place, targets={}) for place, example in enumerate(examples)]
    yield from micro_batches(numbered, tokens)


def outputs(
    learner: Learner, name: str, examples: Sequence[Example], *, tokens: int = TOKENS, per_token: bool = False
) -> list[NDArray[np.float32]]:
    """Return what the head `name` gives for each example, in the order given, without dropout.

    Each is (K,), or (n, K) for the n tokens of an example if `per_token`. The learner is left in the mode it was in.
    """
    head = learner.heads[name]
    found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
    with evaluating(learner) as device:
        for batch in batches(examples, tokens=tokens):
            there = batch.to(device)
            values = head.outputs(learner.states(there), there).float().cpu()
            rows = values.split(list(batch.lengths)) if per_token else values.unbind()
            for place, row in zip(batch.records.tolist(), rows, strict=True):
                found[place] = row.numpy()
    return found


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[torch.device]:
    """Go without dropout and gradients inside the block; gives the model's device, and its mode back afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield next(model.parameters()).device
    finally:
        model.train(training)
