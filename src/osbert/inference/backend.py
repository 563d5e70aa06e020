"""The torch backend of an Engine: flat batches, on the CPU or a GPU. Exports have another one (onnx_backend.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.example import Example
from osbert.evaluation import forward
from osbert.models.contract import Learner, Sizes
from osbert.models.forms import pool_texts

if TYPE_CHECKING:
    from osbert.tasks import Prediction, Task

Vectors = NDArray[np.float32]


class TorchBackend:
    """Computes with a Learner in evaluation mode. Results are in the order of the examples, however they are batched.

    `architecture`: the encoder's sizes. `pooler`: whether its backbone has a trained pooler.
    """

    def __init__(self, learner: Learner, *, pooler: bool) -> None:
        """Use `learner`."""
        self.learner = learner
        self.architecture: Sizes = learner.backbone.architecture
        self.pooler = pooler

    def outputs(self, task: Task, examples: Sequence[Example], *, tokens: int) -> list[Vectors]:
        """Return the output of the task's head for each example: (K,), or (n, K) for its n tokens if `per_token`.

        `tokens`: most tokens in a batch.
        """
        return forward.outputs(self.learner, task.name, examples, tokens=tokens, per_token=task.per_token)

    def decoding(self, task: Task) -> Callable[..., Prediction]:
        """Return the function that decodes outputs (`Task.decode_with`), with the values that the head has learnt."""
        head = self.learner.heads[task.name]
        return task.decode_with(head.decoding_values())

    def vectors(
        self, examples: Sequence[Example], *, pooling: str, layers: Sequence[int], tokens: int, skip: int = 0
    ) -> list[Vectors]:
        """Return the pooled states (layers, D) of each example, or (n, layers, D) for its n tokens without pooling.

        `pooling`: a Pooling, or several of models/forms.py joined by "+", whose vectors are concatenated. `layers`: 0
        is the embedding output, 1 the first block. `skip`: first tokens that are not pooled.
        """
        backbone = self.learner.backbone
        example_vectors: list[Vectors] = [np.empty(0, np.float32)] * len(examples)
        with forward.evaluating(backbone) as device:
            for cpu_batch in forward.batches(examples, tokens=tokens):
                batch = cpu_batch.to(device)
                if pooling == "pooler":
                    rows = list(backbone(batch).pooled.unsqueeze(1).unbind())
                else:
                    # `layers` yields one layer after the other: only the chosen ones are kept in memory.
                    chosen: dict[int, Tensor] = {}
                    for number, layer_states in enumerate(backbone.layers(batch)):
                        if number in layers:
                            chosen[number] = layer_states
                    states = torch.stack(list(map(chosen.__getitem__, layers)), dim=1)  # (N, layers, D)
                    rows = _pool(states, batch, pooling, backbone.summaries(batch), skip)
                # Batches do not keep the order of the examples; `records` has the index of each row among them.
                for index, row in zip(cpu_batch.records.tolist(), rows, strict=True):
                    example_vectors[index] = row.float().cpu().numpy()
        return example_vectors


def _pool(states: Tensor, batch: Batch, pooling: str, summaries: Tensor, skip: int) -> list[Tensor]:
    """Return the pooled vectors of each sequence from its states (N, layers, D); without pooling its states."""
    if pooling == "tokens":
        return list(states.split(list(batch.lengths)))
    return pool_texts(states, batch, pooling, summaries, skip=skip)
