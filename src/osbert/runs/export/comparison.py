"""Comparison of an export with its run: metric, largest difference, speed and size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from osbert.data.example import Example
from osbert.evaluation.forward import TOKENS
from osbert.evaluation.score import decode_records, encode_records, refuse_long, require_labels
from osbert.inference.backend import Vectors
from osbert.inference.engine import Engine
from osbert.interop.files.weight_files import ONNX
from osbert.tasks import Record, Task
from osbert.terminal import format_count, in_megabytes

SEQUENCES = 64
"""Number of sequences of random pieces on which hidden states are compared."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of the comparison: `outputs` of all sequences, the `seconds` they took, and the size in bytes.

    `score`: the task's main metric, None for an encoder.
    """

    reported: ClassVar[tuple[str, ...]] = ("score", "seconds", "size")

    outputs: list[Vectors]
    seconds: float
    size: int
    score: float | None = None


@dataclass(frozen=True, kw_only=True)
class ExportComparison:
    """Both sides: `run` in torch, `exported` in onnxruntime; `what`: the data, such as "872 rows"."""

    reported: ClassVar[tuple[str, ...]] = ("what", "criterion", "difference", "drop", "run", "exported")

    run: Side
    exported: Side
    what: str
    criterion: str = ""

    @property
    def difference(self) -> float:
        """The largest absolute difference of two outputs; NaN if one is NaN."""
        # np.max propagates NaN; Python's max would depend on the order.
        pairs = zip(self.run.outputs, self.exported.outputs, strict=True)
        return float(np.max([np.abs(output - other).max() for output, other in pairs]))

    @property
    def drop(self) -> float | None:
        """The metric of the run minus that of the export; None without a metric."""
        score, other = self.run.score, self.exported.score
        return None if score is None or other is None else score - other

    def lines(self, *, int8: bool) -> list[str]:
        """Return the comparison as a table for a reader."""
        sides = {"torch fp32": self.run, f"onnxruntime {'int8' if int8 else 'fp32'}": self.exported}
        count = len(self.run.outputs)
        rows = [["", *sides]]
        if self.criterion:
            rows.append([self.criterion, *(f"{side.score:.4f}" for side in sides.values())])
        rows.append(["sequences a second", *(f"{count / side.seconds:,.1f}" for side in sides.values())])
        rows.append(["size", *(in_megabytes(side.size) for side in sides.values())])
        first, *widths = (max(map(len, column)) for column in zip(*rows))
        lines = [f"{name:{first}}  {'  '.join(f'{c:>{w}}' for c, w in zip(cells, widths))}" for name, *cells in rows]
        kind = "scores" if self.criterion else "states"
        return [self.what, *lines, f"largest difference of {kind}: {self.difference:.2g}"]


def compare_predictions(run: Engine, exported: Engine, task: Task, records: Sequence[Record]) -> ExportComparison:
    """Compare both on labelled records. Raises UserError if a record has no label."""
    require_labels(records)
    sides = [_score_side(engine, task, records) for engine in (run, exported)]
    return ExportComparison(
        run=sides[0], exported=sides[1], what=format_count(len(records), "row"), criterion=task.criterion
    )


def compare_states(run: Engine, exported: Engine) -> ExportComparison:
    """Compare the hidden states of an encoder, which has no rows, on random pieces."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, run.packer.length + 1, size=SEQUENCES)
    examples = []
    for size in sizes.tolist():
        ids = rng.integers(len(run.tokenizer), size=size, dtype=np.int32)
        nothing = np.zeros(size, np.bool_)
        examples.append(Example(ids=ids, segments=np.zeros(size, np.int8), words=nothing, special=nothing))
    what = f"an encoder, on {SEQUENCES} sequences of random pieces"
    sides = [_encode_side(engine, examples) for engine in (run, exported)]
    return ExportComparison(run=sides[0], exported=sides[1], what=what)


def _score_side(engine: Engine, task: Task, records: Sequence[Record]) -> Side:
    all_outputs: list[Vectors] = []
    seconds = 0.0

    def outputs(examples: Sequence[Example]) -> list[Vectors]:
        nonlocal seconds
        # A warm-up call, so that one-time work (allocations, kernel selection) is not timed.
        engine.backend.outputs(task, examples[:1], tokens=TOKENS)
        started = time.perf_counter()
        given = engine.backend.outputs(task, examples, tokens=TOKENS)
        seconds += time.perf_counter() - started
        all_outputs.extend(given)
        return given

    refuse_long(task, records, engine.packer)
    pairs = encode_records(task, records, engine.packer)
    predictions = decode_records(pairs, outputs=outputs, decode=engine.backend.decoding(task))
    score = task.metrics(predictions, records)[task.criterion]
    return Side(outputs=all_outputs, seconds=seconds, size=_size(engine), score=score)


def _encode_side(engine: Engine, examples: Sequence[Example]) -> Side:
    engine.states_of(examples[:1])
    started = time.perf_counter()
    states = engine.states_of(examples)
    return Side(outputs=states, seconds=time.perf_counter() - started, size=_size(engine))


def _size(engine: Engine) -> int:
    """Return the bytes of the ONNX file, or of torch's weights."""
    path = Path(engine.folder) / ONNX
    if path.is_file():
        return path.stat().st_size
    return sum(weight.numel() * weight.element_size() for weight in engine.learner.parameters())
