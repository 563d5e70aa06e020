"""Examples -> a head's outputs in the same order, computed in batches of similar token counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from osbert.data.batch import Batch, micro_batches
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.models.contract import Learner

Item = TypeVar("Item")
TOKENS = 4096
"""Most tokens in a batch: enough to occupy two cores, few enough for their caches."""


def batches(examples: Sequence[Example], *, tokens: int = TOKENS) -> Iterator[Batch]:
    """Yield the examples without targets in batches of at most `tokens` tokens; `records` are indices of `examples`."""
    numbered = replace(Examples.of(examples), records=np.arange(len(examples)), targets={})
    yield from micro_batches(numbered, tokens)


def gather(items: Iterable[Item], least: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield lists of neighbouring items of a size of at least `least` together, but for the last, so memory is bounded.

    >>> list(gather(["a", "bc", "d"], 3, len))
    [['a', 'bc'], ['d']]
    """
    gathered: list[Item] = []
    total = 0
    for item in items:
        gathered.append(item)
        total += size(item)
        if total >= least:
            yield gathered
            gathered, total = [], 0
    if gathered:
        yield gathered


def outputs(
    learner: Learner, name: str, examples: Sequence[Example], *, tokens: int = TOKENS, per_token: bool = False
) -> list[NDArray[np.float32]]:
    """Return the outputs of the head `name` for each example, in order, without dropout.

    Each is (K,), or (n, K) for the n tokens of an example if `per_token`. The learner's mode is restored.
    """
    head = learner.heads[name]
    output_rows: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
    with evaluating(learner) as device:
        for batch in batches(examples, tokens=tokens):
            device_batch = batch.to(device)
            values = head.outputs(learner.states(device_batch), device_batch).float().cpu()
            rows = values.split(list(batch.lengths)) if per_token else values.unbind()
            # Batches are sorted by length; `records` restores the order.
            for index, row in zip(batch.records.tolist(), rows, strict=True):
                output_rows[index] = row.numpy()
    return output_rows


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[torch.device]:
    """Disable dropout and gradients inside the block; yield the model's device. The mode is restored afterwards."""
    training = model.training
    # Switching costs a tenth of a short text. A module with a `train` of its own must learn that an evaluation begins.
    switched = any(module.training or type(module).train is not nn.Module.train for module in model.modules())
    if switched:
        model.eval()
    try:
        with torch.inference_mode():
            yield next(model.parameters()).device
    finally:
        if switched:
            model.train(training)
