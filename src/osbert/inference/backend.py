"""The runtimes of an Engine behind one interface, and that of torch: flat batches, on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.example import Example
from osbert.evaluation import forward
from osbert.models.contract import Learner, Sizes
from osbert.models.forms import pool_states, split_pooling
from osbert.tasks import Prediction, Task

Vectors = NDArray[np.float32]


class Backend(Protocol):
    """A loaded model. Results are in the order of the examples, however they are batched."""

    @property
    def architecture(self) -> Sizes:
        """The encoder's sizes."""
        ...

    @property
    def pooler(self) -> bool:
        """Whether there is a trained pooler."""
        ...

    def outputs(self, task: Task, examples: Sequence[Example], *, tokens: int) -> list[Vectors]:
        """Return the output of the task's head for each example: (K,), or (n, K) for its n tokens if `per_token`.

        `tokens`: most tokens in a batch.
        """
        ...

    def decoding(self, task: Task) -> Callable[..., Prediction]:
        """Return the function that decodes the outputs, as `Task.decode_with`."""
        ...

    def vectors(
        self, examples: Sequence[Example], *, pooling: str, layers: Sequence[int], tokens: int, skip: int = 0
    ) -> list[Vectors]:
        """Return (layers, D) for each example, or (n, layers, D) for its n tokens without pooling.

        `pooling`: a Pooling, or several of models/forms.py joined by "+", whose vectors are concatenated. `layers`: 0
        is the embedding output, 1 the first block. `skip`: first tokens that are not pooled. Raises UserError if a
        layer is not available.
        """
        ...


class TorchBackend:
    """Computes with a Learner in evaluation mode."""

    def __init__(self, learner: Learner, *, pooler: bool) -> None:
        """Use `learner`; `pooler`: whether its backbone has a trained pooler."""
        self.learner = learner
        self.pooler = pooler

    @property
    def architecture(self) -> Sizes:
        """The encoder's sizes."""
        return self.learner.backbone.architecture

    def outputs(self, task: Task, examples: Sequence[Example], *, tokens: int) -> list[Vectors]:
        """Return the output of the task's head for each example."""
        return forward.outputs(self.learner, task.name, examples, tokens=tokens, per_token=task.per_token)

    def decoding(self, task: Task) -> Callable[..., Prediction]:
        """Return the function that decodes outputs, with the values that the head has learnt."""
        head = self.learner.heads[task.name]
        return task.decode_with(head.decoding_values())

    def vectors(
        self, examples: Sequence[Example], *, pooling: str, layers: Sequence[int], tokens: int, skip: int = 0
    ) -> list[Vectors]:
        """Return the pooled hidden states of each example."""
        example_vectors: list[Vectors] = [np.empty(0, np.float32)] * len(examples)
        with forward.evaluating(self.learner.backbone) as device:
            for batch in forward.batches(examples, tokens=tokens):
                rows = self._pool(batch.to(device), pooling, layers, skip)
                # Batches do not keep the order of the examples; `records` has the index of each row among them.
                for index, row in zip(batch.records.tolist(), rows, strict=True):
                    example_vectors[index] = row.float().cpu().numpy()
        return example_vectors

    def _pool(self, batch: Batch, pooling: str, layers: Sequence[int], skip: int) -> list[Tensor]:
        backbone = self.learner.backbone
        if pooling == "pooler":
            return list(backbone(batch).pooled.unsqueeze(1).unbind())
        # `layers` yields one layer after the other: only the chosen ones are kept in memory.
        wanted = {number: state for number, state in enumerate(backbone.layers(batch)) if number in set(layers)}
        states = torch.stack([wanted[number] for number in layers], dim=1)  # (N, layers, D)
        if pooling == "tokens":
            return list(states.split(list(batch.lengths)))
        summaries = backbone.summaries(batch)
        several = [pool_states(states, batch, name, summaries, skip=skip) for name in split_pooling(pooling)]
        return several[0] if len(several) == 1 else [torch.cat(parts, dim=-1) for parts in zip(*several, strict=True)]
