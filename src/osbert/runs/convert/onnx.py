"""The last step of a conversion to ONNX: the run is exported and compared with the source."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS
from osbert.inference.backend import Vectors
from osbert.inference.engine import Engine, load
from osbert.interop.conversion import HIDDEN, Difference, ModelParts, sequences, write_model_as
from osbert.interop.onnx.files import require_writers
from osbert.interop.onnx.padded import objections, scoring_task
from osbert.interop.opening import Opening
from osbert.interop.task_files import TaskHint
from osbert.runs.contract import Watch
from osbert.runs.convert.comparison import compare, require_small
from osbert.runs.export.onnx_export import write

BOUND = 1e-4
"""Largest tolerated difference: onnxruntime sums in another order and computes attention with padding."""


def refuse(model: ModelParts) -> None:
    """Raise UserError if a library is missing, or the model cannot be exported to ONNX."""
    require_writers()
    task = scoring_task(model.task)
    if reasons := list(objections(model.learner, task.name if task else "")):
        raise UserError(f"{model.source} cannot be exported: {' and '.join(reasons)}.", code="not-exportable")


def write_exported(
    model: ModelParts, source: Path, folder: Path, hint: TaskHint, opening: Opening, watch: Watch
) -> None:
    """Write a model as `osbert export` does, through a temporary run folder that is compared with the source.

    Raises UserError when either step changes what the model says.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".run-") as scratch:
        run = Path(scratch) / "run"
        write_model_as(model, run, "osbert")
        compare(source, run, hint, opening, watch)
        engine = load(run, device="cpu", opening=opening)
        write(engine, run, folder, int8=False)
    differences = _differences(engine, load(folder, opening=opening), model)
    require_small(differences, of="In onnxruntime", watch=watch)


def _differences(run: Engine, exported: Engine, model: ModelParts) -> list[Difference]:
    examples = sequences(model)
    states = (engine.states_of(examples) for engine in (run, exported))
    differences = [Difference(what=HIDDEN, largest=_largest(*states), bound=BOUND)]
    if task := scoring_task(run.task):
        scores = (engine.backend.outputs(task, examples, tokens=TOKENS) for engine in (run, exported))
        differences.append(Difference(what=f"scores of {task.name}", largest=_largest(*scores), bound=BOUND))
    return differences


def _largest(first: Sequence[Vectors], second: Sequence[Vectors]) -> float:
    return max(float(np.abs(values - other).max()) for values, other in zip(first, second, strict=True))
