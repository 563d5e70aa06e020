"""The runtimes of an Engine: torch, with flat batches, or onnxruntime, with padded ones, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.data.batch import Batch
from osbert.data.example import Example
from osbert.data.rectangles import Rectangle, rectangles
from osbert.errors import Problems, UserError
from osbert.evaluation import forward
from osbert.inference.vectors.settings import Pooling
from osbert.interop.onnx.files import ONNX, encoding_sizes, open_onnx, reason
from osbert.interop.onnx.padded import POOLER, SCORES, SPAN_SCORES, STATES, VECTORS
from osbert.models.contract import Learner, Sizes
from osbert.models.forms import pool_states
from osbert.tasks import Prediction, Task
from osbert.text.file_tokenizer import AnyTokenizer

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
        self, examples: Sequence[Example], *, pooling: Pooling, layers: Sequence[int], tokens: int
    ) -> list[Vectors]:
        """Return the pooled hidden states of each example."""
        example_vectors: list[Vectors] = [np.empty(0, np.float32)] * len(examples)
        with forward.evaluating(self.learner.backbone) as device:
            for batch in forward.batches(examples, tokens=tokens):
                rows = self._pool(batch.to(device), pooling, layers)
                # Batches do not keep the order of the examples; `records` has the index of each row among them.
                for index, row in zip(batch.records.tolist(), rows, strict=True):
                    example_vectors[index] = row.float().cpu().numpy()
        return example_vectors

    def _pool(self, batch: Batch, pooling: Pooling, layers: Sequence[int]) -> list[Tensor]:
        backbone = self.learner.backbone
        if pooling == "pooler":
            return list(backbone(batch).pooled.unsqueeze(1).unbind())
        # `layers` yields one layer after the other: only the chosen ones are kept in memory.
        wanted = {number: state for number, state in enumerate(backbone.layers(batch)) if number in set(layers)}
        states = torch.stack([wanted[number] for number in layers], dim=1)  # (N, layers, D)
        if pooling == "tokens":
            return list(states.split(list(batch.lengths)))
        return pool_states(states, batch, pooling, backbone.summaries(batch))


RECTANGLE = 1024
"""Most tokens in a padded batch, padding included. Larger ones exceed the CPU caches and have more padding."""


class OnnxBackend:
    """Runs an ONNX file in padded batches (rectangles) of at most `RECTANGLE` tokens."""

    def __init__(self, path: Path, architecture: Sizes) -> None:
        """Open the file of a model with these sizes. Raises UserError as `open_onnx`."""
        self.path = path
        self.architecture = architecture
        self.opened = open_onnx(path)

    @property
    def pooler(self) -> bool:
        """Whether the file has the pooler's output."""
        return POOLER in self.opened.names

    def check(self, task: Task | None, tokenizer: AnyTokenizer) -> None:
        """Raise UserError if the file does not match the config, the tokenizer or the task beside it."""
        problems = Problems(heading=f"{self.path.parent} is not of one export")
        sizes = encoding_sizes(self.architecture)
        for name, size in self.opened.sizes.items():
            if sizes.get(name) != size:
                problems.add(
                    f"config.json tells of {name} {sizes.get(name)}, but the model in {ONNX} has {size}.",
                    code="damaged-file",
                )
        if self.opened.tokenizer not in ("", tokenizer.fingerprint):
            problems.add(
                f"The tokenizer is another one than that with which {ONNX} was exported.", code="mismatched-tokenizer"
            )
        if task and not self._scores:
            problems.add(f"{ONNX} has no scores, but the folder is a run of {task.name}.", code="damaged-file")
        if problems.count:
            problems.add("Export the run again: osbert export RUN --to onnx.", code="damaged-file")
        problems.stop_if_any()

    def outputs(self, task: Task, examples: Sequence[Example], *, tokens: int) -> list[Vectors]:
        """Return the output of the task's head for each example, in the units of the run's own head."""
        published = {} if VECTORS in self.opened.names else task.export_metadata()  # vectors have no unit
        # An exported regression gives numbers in the label's units; decoding expects standardised ones.
        center, scale = published.get("center", 0.0), published.get("scale", 1.0)
        head_outputs: list[Vectors] = [np.empty(0, np.float32)] * len(examples)
        for part, (scores, *others) in self._run(self._scores, examples, tokens):
            scores = np.stack([scores, *others], axis=-1) if others else scores
            scores = scores if (center, scale) == (0, 1) else (scores - center) / scale
            for row, index in enumerate(part.indices):
                head_outputs[index] = scores[row, : part.lengths[row]] if task.per_token else scores[row]
        return head_outputs

    def decoding(self, task: Task) -> Callable[..., Prediction]:
        """Return the function that decodes outputs, with the values that the run's head had learnt."""
        return task.decode_with(self.opened.learnt)

    def vectors(
        self, examples: Sequence[Example], *, pooling: Pooling, layers: Sequence[int], tokens: int
    ) -> list[Vectors]:
        """Return the pooled hidden states of each example. Raises UserError for other layers than the last."""
        if set(layers) != {self.architecture.layers}:
            raise UserError(
                f"{self.path.parent} is exported and has its last layer alone: take --layers -1.",
                code="unsupported-model",
            )
        example_vectors: list[Vectors] = [np.empty(0, np.float32)] * len(examples)
        for part, (states,) in self._run([POOLER if pooling == "pooler" else STATES], examples, tokens):
            for row, index in enumerate(part.indices):
                vector = states[row] if pooling == "pooler" else self._pool(states[row, : part.lengths[row]], pooling)
                # The contract has an axis for layers; all of them are the last one here.
                example_vectors[index] = np.repeat(vector[..., None, :], len(layers), axis=-2)
        return example_vectors

    @property
    def _scores(self) -> list[str]:
        return [name for name in (SCORES, *SPAN_SCORES, VECTORS) if name in self.opened.names]

    def _run(
        self, names: Sequence[str], examples: Sequence[Example], tokens: int
    ) -> Iterator[tuple[Rectangle, list[Vectors]]]:
        for part in rectangles(examples, tokens=min(tokens, RECTANGLE)):
            columns = {"input_ids": part.ids, "token_type_ids": part.segments, "attention_mask": part.mask}
            try:
                outputs = self.opened.session.run(list(names), columns)
            except Exception as error:  # of many classes with no other parent
                raise UserError(
                    f"{self.path}: onnxruntime cannot run it: {reason(error)}. Are config.json and the tokenizer "
                    "beside it of the same export? If so, is there memory enough?",
                    code="damaged-file",
                ) from error
            yield part, outputs

    def _pool(self, states: Vectors, pooling: Pooling) -> Vectors:
        """Return the pooled vector (D,) of a sequence's hidden states (n, D); without pooling, the states."""
        if pooling == "cls":
            return states[-1 if self.architecture.summary_is_last else 0]
        if pooling == "mean":
            return states.mean(axis=0)
        if pooling == "weighted":
            return np.average(states, axis=0, weights=np.arange(1, len(states) + 1)).astype(states.dtype)
        return states.max(axis=0) if pooling == "max" else states
