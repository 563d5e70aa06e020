"""The onnxruntime backend: an exported folder, on the CPU, in float32 or int8. No torch.

Sequences of similar lengths share a padded rectangle, so that there is little padding. Rectangles have a similar number
of tokens rather than of sequences, so that each takes a similar time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.errors import Problems, UserError
from osbert.interop.files.weight_files import ONNX
from osbert.interop.onnx.files import encoding_sizes, open_onnx, reason
from osbert.interop.onnx.padded import POOLER, SCORES, SPAN_SCORES, STATES, VECTORS
from osbert.models.contract import Sizes
from osbert.models.forms import split_pooling
from osbert.tasks import Prediction, Task
from osbert.text.file_tokenizer import AnyTokenizer

RECTANGLE = 1024
"""Most tokens in a padded batch, padding included. Larger ones exceed the CPU caches and have more padding."""

Columns = NDArray[np.int64]
Vectors = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Rectangle:
    """A padded batch: `ids`, `segments` and `mask` (B, T); the mask is 1 for tokens and 0 for the padding after them.

    `indices` (B,): index of each sequence in the input; `lengths` (B,): its number of tokens.
    """

    ids: Columns
    segments: Columns
    mask: Columns
    indices: tuple[int, ...]
    lengths: tuple[int, ...]


def rectangles(examples: Sequence[Example], *, tokens: int) -> Iterator[Rectangle]:
    """Yield the examples, longest first, in rectangles of at most `tokens` tokens, padding included.

    A sequence longer than `tokens` gets its own rectangle. Raises ValueError for an example with an order,
    positions, unseen tokens or a source.
    """
    if any(
        column is not None for each in examples for column in (each.order, each.positions, each.unseen, each.source)
    ):
        raise ValueError(
            "examples with an order, positions, unseen tokens or a source of their own cannot be padded to a rectangle"
        )
    order = sorted(range(len(examples)), key=lambda index: -len(examples[index]))
    start = 0
    while start < len(order):
        # The first sequence is the longest of its rectangle, so it decides how many rows fit.
        count = max(1, tokens // len(examples[order[start]]))
        indices = order[start : start + count]
        lengths = [len(examples[index]) for index in indices]
        ids, segments, mask = np.zeros((3, len(indices), max(lengths)), np.int64)
        for row, (index, length) in enumerate(zip(indices, lengths)):
            ids[row, :length], segments[row, :length] = examples[index].ids, examples[index].segments
            mask[row, :length] = 1
        yield Rectangle(ids=ids, segments=segments, mask=mask, indices=tuple(indices), lengths=tuple(lengths))
        start += count


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
        problems = Problems(heading=f"The files in {self.path.parent} are not from one export")
        sizes = encoding_sizes(self.architecture)
        for name, size in self.opened.sizes.items():
            if sizes.get(name) != size:
                problems.add(
                    f"config.json has {name} = {sizes.get(name)}, but the model in {ONNX} has {size}.",
                    code="damaged-file",
                )
        if self.opened.tokenizer not in ("", tokenizer.fingerprint):
            problems.add(f"The tokenizer is not the one with which {ONNX} was exported.", code="mismatched-tokenizer")
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
        self, examples: Sequence[Example], *, pooling: str, layers: Sequence[int], tokens: int, skip: int = 0
    ) -> list[Vectors]:
        """Return the pooled hidden states of each example. Raises UserError for other layers than the last."""
        if set(layers) != {self.architecture.layers}:
            raise UserError(
                f"{self.path.parent} is exported and has only the last layer: use --layers -1.",
                code="unsupported-model",
            )
        example_vectors: list[Vectors] = [np.empty(0, np.float32)] * len(examples)
        for part, (states,) in self._run([POOLER if pooling == "pooler" else STATES], examples, tokens):
            for row, index in enumerate(part.indices):
                vector = states[row]
                if pooling != "pooler":
                    vector = self._pool(vector[: part.lengths[row]], pooling, skip)
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
                    "from the same export, and is there enough memory?",
                    code="damaged-file",
                ) from error
            yield part, outputs

    def _pool(self, states: Vectors, pooling: str, skip: int) -> Vectors:
        """Return the pooled vector of a sequence's hidden states (n, D); without pooling, the states."""
        if pooling == "tokens":
            return states
        first = min(skip, len(states) - 1)
        summary = -1 if self.architecture.summary_is_last else first
        weights = np.arange(first + 1, len(states) + 1, dtype=states.dtype)
        states, every = states[first:], states
        pools: dict[str, Callable[[], Vectors]] = {
            "cls": lambda: every[summary],
            "mean": lambda: states.mean(axis=0),
            "max": lambda: states.max(axis=0),
            "weighted": lambda: weights @ states / weights.sum(),
            "mean_sqrt": lambda: states.sum(axis=0) / np.float32(len(states) ** 0.5),
            "last": lambda: states[-1],
        }
        parts = [pools[name]() for name in split_pooling(pooling)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
