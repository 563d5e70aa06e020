"""The interface of an Engine to its runtime: torch or onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.inference.vectors.settings import Pooling
from osbert.models.contract import Sizes
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
        self, examples: Sequence[Example], *, pooling: Pooling, layers: Sequence[int], tokens: int
    ) -> list[Vectors]:
        """Return (layers, D) for each example, or (n, layers, D) for its n tokens without pooling.

        `layers`: 0 is the embedding output, 1 the first block. Raises UserError if a layer is not available.
        """
        ...
