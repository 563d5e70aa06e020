"""Converts a model between osbert's run folders, Hugging Face folders, ONNX and foreign forms.

Source and target must give the same outputs for a few texts.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from osbert.errors import Problems, UserError
from osbert.evaluation.forward import TOKENS
from osbert.files import require_free, whole_folder
from osbert.inference.engine import Engine, load
from osbert.inference.model import Vectors
from osbert.interop.conversion import (
    HIDDEN,
    Difference,
    ModelParts,
    differences,
    model_of,
    notes,
    open_any,
    sequences,
    write_model_as,
)
from osbert.interop.foreign_forms import FILES, OSBERT_FORMS, find_form, folder_form_names, form_of_file
from osbert.interop.huggingface.folders import TensorRow
from osbert.interop.onnx.files import require_writers
from osbert.interop.onnx.padded import objections, scoring_task
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.task_files import TaskHint
from osbert.lock import claim
from osbert.runs.contract import Watch, ignore
from osbert.runs.export import write
from osbert.terminal import format_count, in_columns

ONNX_BOUND = 1e-4
"""Largest tolerated difference: onnxruntime sums in another order and computes attention with padding."""
LAYER = re.compile(r"\blayer[._](\d+)\b")


def mark(row: TensorRow) -> str:
    """Return the mark of a row."""
    return "expected" if row.expected else "PROBLEM"


def merge_layers(rows: tuple[TensorRow, ...]) -> list[TensorRow]:
    """Merge rows that differ only in their layer, in the order of the first one."""
    groups: dict[TensorRow, list[int]] = {}
    for row in rows:
        match = LAYER.search(row.name)
        # Replace the layer's number by "*": rows of all layers then have the same key.
        name = row.name if match is None else f"{row.name[: match.start(1)]}*{row.name[match.end(1) :]}"
        groups.setdefault(replace(row, name=name), []).append(int(match[1]) if match else -1)
    merged_rows = []
    for row, layers in groups.items():
        several = f"{min(layers)}-{max(layers)}" if len(layers) > 1 else str(layers[0])
        # Merge consecutive layers only: "0-11" must not hide a gap.
        if len(layers) == max(layers) - min(layers) + 1:
            merged_rows.append(replace(row, name=row.name.replace("*", several)))
        else:
            merged_rows += [replace(row, name=row.name.replace("*", str(layer))) for layer in layers]
    return merged_rows


def count(rows: Sequence[TensorRow]) -> str:
    """Describe how many tensors are a PROBLEM."""
    return "1 tensor is a PROBLEM" if len(rows) == 1 else f"{len(rows):,} tensors are a PROBLEM"


@dataclass(frozen=True, kw_only=True)
class ConversionSettings:
    """The target's format, and facts that the source's files may lack.

    `to`: the name of a form (interop/foreign_forms.py has those of other packages). `task`: that of the last layer.
    `labels`: the names of its outputs, in order. `anyway`: write the target even if a tensor is a problem.
    """

    to: str
    task: str | None = None
    labels: tuple[str, ...] = ()
    anyway: bool = False


@dataclass(frozen=True, kw_only=True)
class SourceModel:
    """Event: the model to convert has been opened; its report has a row for every tensor."""

    reported: ClassVar[tuple[str, ...]] = ("path", "description", "tensors")

    path: Path
    model: ModelParts

    @property
    def description(self) -> str:
        """A one-line description of the result."""
        model, source = self.model, self.model.source
        sizes = model.learner.backbone.architecture
        osbert_title = "a run of osbert's" if source.form == "osbert" else "Hugging Face's"
        title = source.foreign.form.title if source.foreign else osbert_title
        heads = ", ".join(model.learner.heads) or "no head"
        task = f"; task {model.task.name}" if model.task else ""
        pieces = f"{len(source.tokenizer):,} pieces"
        return f"{title}, {sizes.layers} layers of {sizes.width}, {pieces}; {heads}{task}"

    @property
    def tensors(self) -> Sequence[TensorRow]:
        """A row for every tensor, with its fate."""
        return self.model.report.rows

    def lines(self) -> Iterator[str]:
        """Yield a line on the model, and the table of all tensors with their totals."""
        yield f"{self.path}: {self.description}"
        report = self.model.report
        cells = [
            (row.name, " x ".join(map(str, row.shape)) or "number", row.status, mark(row), row.remark)
            for row in merge_layers(report.rows)
        ]
        yield from in_columns(cells, indent="  ")
        totals = {status: len(report.select_names(status)) for status in ("loaded", "new", "unused")}
        summary = ", ".join(f"{number:,} {status}" for status, number in totals.items())
        yield f"{summary}; {count(report.problems) if report.problems else 'no problem'}"


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A written target: remarks for the user, and the tensors that are a problem."""

    target: Path
    notes: Sequence[str]
    problems: Sequence[TensorRow]


def convert(
    source: Path,
    target: Path,
    *,
    settings: ConversionSettings,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> Conversion:
    """Convert a model between osbert's run folders, Hugging Face folders and foreign forms, or to ONNX.

    A model in one file, such as a table of word vectors, becomes a run folder first.

    The target is complete or missing. Raises UserError if a tensor is a problem, unless settings.anyway, and if the
    outputs of both forms differ on a few texts.
    """
    to = settings.to
    if to not in folder_form_names():
        find_form(FILES, to).write(source, target, opening)
        return Conversion(target=target, notes=[], problems=[])
    if form := form_of_file(source):
        if to != "osbert":
            raise UserError(
                f"{source} contains {form.content}: convert it with --to osbert first.", code="not-convertible"
            )
        with claim(target) as claimed_path:
            return Conversion(target=target, notes=form.read(source, claimed_path), problems=[])
    with claim(target) as claimed_path:
        require_free(claimed_path)
        if not source.exists() and not list(source.parent.glob(f"{source.name}.*")):
            raise UserError(f"{source} does not exist.", code="missing-file")
        hint = TaskHint(kind=settings.task, labels=settings.labels)
        model = open_model(source, hint, opening, watch)
        problems = model.report.problems
        if problems and not settings.anyway:
            raise UserError(
                f"{count(problems)} above; nothing was written. --anyway writes {target} without these parts.",
                code="not-convertible",
            )
        if to == "onnx":
            refuse_onnx(model)
        # The folder gets its name when the block ends without an error, so a failed comparison leaves nothing behind.
        with whole_folder(claimed_path) as folder:
            if to == "onnx":
                write_onnx(model, source, folder, hint, opening.again, watch)
            else:
                write_model_as(model, folder, to)
                compare(source, folder, hint, opening.again, watch)
                for name in model.source.companions if to in OSBERT_FORMS else ():
                    beside = model_of(open_any(source / name, opening.again))
                    write_model_as(beside, folder / name, to)
    return Conversion(target=target, notes=list(notes(model, to)), problems=problems)


def open_model(source: Path, hint: TaskHint, opening: Opening, watch: Watch) -> ModelParts:
    """Open a model and report events on it. Raises UserError if `hint` names a layer that the model lacks."""
    model = model_of(open_any(source, opening), hint)
    if model.task is None and (hint.kind or hint.labels):
        raise UserError(
            f"{source} has no task layer that --task and --labels could describe. Remove them.",
            code="options-exclude-each-other",
        )
    watch(SourceModel(path=source, model=model))
    return model


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Event: the largest differences between two models. `of`: how they were compared."""

    of: str
    differences: Sequence[Difference]

    def lines(self) -> Iterator[str]:
        """Yield a line for each difference, marked if it exceeds its bound."""
        yield f"{self.of}, largest differences (bound {self.differences[0].bound:g}):"
        yield from (
            f"  {difference.what}: {difference.largest:.2g}{'' if difference.small else '  PROBLEM'}"
            for difference in self.differences
        )


def compare(source: Path, written: Path, hint: TaskHint, opening: Opening, watch: Watch) -> None:
    """Load both models from disk and compare their outputs. Raises UserError if a difference exceeds its bound."""
    first, second = model_of(open_any(source, opening), hint), model_of(open_any(written, opening))
    try:
        model_differences = differences(first, second)
    except ValueError as error:
        raise UserError(f"The forward check has failed: {error}. Nothing was written.", code="check-failed") from error
    require_small(
        model_differences, of=f"Both loaded anew, on {format_count(len(sequences(first)), 'sequence')}", watch=watch
    )


def require_small(model_differences: Sequence[Difference], *, of: str, watch: Watch) -> None:
    """Report the differences of two models. Raises UserError if one exceeds its bound."""
    watch(ModelComparison(of=of, differences=model_differences))
    problems = Problems(heading="The forward check has failed; nothing was written")
    for difference in model_differences:
        if not difference.small:
            problems.add(
                f"{difference.what} differ by {difference.largest:g}, more than {difference.bound:g}",
                code="check-failed",
            )
    problems.stop_if_any()


def refuse_onnx(model: ModelParts) -> None:
    """Raise UserError if a library is missing, or the model cannot be exported to ONNX."""
    require_writers()
    task = scoring_task(model.task)
    if reasons := list(objections(model.learner, task.name if task else "")):
        raise UserError(f"{model.source} cannot be exported: {' and '.join(reasons)}.", code="not-exportable")


def write_onnx(model: ModelParts, source: Path, folder: Path, hint: TaskHint, opening: Opening, watch: Watch) -> None:
    """Write a model as `osbert export` does, through a temporary run folder that is compared with the source.

    Raises UserError when either step changes what the model says.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".run-") as scratch:
        run = Path(scratch) / "run"
        write_model_as(model, run, "osbert")
        compare(source, run, hint, opening, watch)
        engine = load(run, device="cpu", opening=opening)
        write(engine, run, folder, int8=False)
    onnx_differences = _onnx_differences(engine, load(folder, opening=opening), model)
    require_small(onnx_differences, of="In onnxruntime", watch=watch)


def _onnx_differences(run: Engine, exported: Engine, model: ModelParts) -> list[Difference]:
    examples = sequences(model)
    states = (engine.states_of(examples) for engine in (run, exported))
    differences = [Difference(what=HIDDEN, largest=_largest(*states), bound=ONNX_BOUND)]
    if task := scoring_task(run.task):
        scores = (engine.backend.outputs(task, examples, tokens=TOKENS) for engine in (run, exported))
        differences.append(Difference(what=f"scores of {task.name}", largest=_largest(*scores), bound=ONNX_BOUND))
    return differences


def _largest(first: Sequence[Vectors], second: Sequence[Vectors]) -> float:
    return max(float(np.abs(values - other).max()) for values, other in zip(first, second, strict=True))
