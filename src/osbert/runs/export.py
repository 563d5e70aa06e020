"""The export of a run or an encoder as ONNX, compared with the original before the folder gets its name."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS
from osbert.evaluation.score import decode_records, encode_records, refuse_long, require_labels
from osbert.files import require_free, whole_folder
from osbert.inference.engine import Engine
from osbert.inference.engine import load as load_engine
from osbert.inference.model import Vectors
from osbert.interop.files.weight_files import ONNX
from osbert.interop.hub import default_out
from osbert.interop.onnx.files import require_writers, write_onnx
from osbert.interop.onnx.padded import PaddedGraph, objections, scoring_task
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.sentence_files import PROMPTS, write_sentence_model
from osbert.interop.task_files import LAYERS
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.lock import claim
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.file_options import LabelledOptions
from osbert.runs.settings import ExportSettings
from osbert.tasks import Record, Task, load
from osbert.terminal import format_count, in_megabytes
from osbert.training.run_folder import RECIPE, RunFolder

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
    sides = []
    for engine in (run, exported):
        engine.states_of(examples[:1])  # a warm-up, as below
        started = time.perf_counter()
        states = engine.states_of(examples)
        sides.append(Side(outputs=states, seconds=time.perf_counter() - started, size=_size(engine)))
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


def _size(engine: Engine) -> int:
    """Return the bytes of the ONNX file, or of torch's weights."""
    path = Path(engine.folder) / ONNX
    if path.is_file():
        return path.stat().st_size
    return sum(weight.numel() * weight.element_size() for weight in engine.learner.parameters())


KEPT = ("config.json", "run.json", PROMPTS)
"""Files of a run that go along as they are, and the recipe where the task's scores do; the tokenizer's are new."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """An exported folder, and how it compares with its run; None where nothing was compared."""

    folder: Path
    comparison: ExportComparison | None = None


def export(
    run: Path,
    *,
    out: Path | None = None,
    settings: ExportSettings | None = None,
    options: LabelledOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> Export:
    """Export a run as ONNX into the folder `out`; by default RUN-onnx or RUN-int8.

    `options`: how settings.data is read. The comparison is an event before it is a value. Raises UserError where the
    run has no form in ONNX and where the export is not as good as the run; nothing is then written.
    """
    require_writers()
    settings = settings or ExportSettings()
    out = out or default_out(run, "-int8" if settings.int8 else "-onnx")
    with claim(out) as claimed_path:
        require_free(claimed_path)
        engine = load_engine(run, device="cpu", opening=opening)
        report_remarks(engine, watch)
        _require_form(engine, run)
        if engine.task is None and engine.writes:
            watch(Notice(f"The export of {run} returns states of texts; it does not generate text."))
        unused = engine.source.report.select_names("unused")
        if engine.task is None and (layers := [name for name in unused if name.startswith(LAYERS)]):
            advice = "osbert convert makes a run with it of this model, whose export gives scores."
            watch(Notice(f"The export of {run} returns states of texts, without {', '.join(layers)}: {advice}"))
        data = None if settings.data is None else Path(settings.data)
        rows = None if settings.unchecked else development(engine, run, data, options or LabelledOptions())
        with whole_folder(claimed_path) as folder:
            write(engine, run, folder, int8=settings.int8)
            if settings.unchecked:
                return Export(folder=out)
            exported = load_engine(folder, opening=opening)
            comparison = compare_predictions(engine, exported, *rows) if rows else compare_states(engine, exported)
            watch(comparison)
            refuse(comparison, settings.tolerance)
    return Export(folder=out, comparison=comparison)


def development(
    engine: Engine, run: Path, data: Path | None, options: LabelledOptions
) -> tuple[Task, Sequence[Record]] | None:
    """Return the rows to compare on, with the task that reads them; None where there is only an encoder.

    Raises UserError when there are none at hand.
    """
    task = scoring_task(engine.task)
    if task is None:
        if data is not None:
            raise UserError(
                f"{run} is exported as an encoder, which is compared on randomly drawn pieces. Remove --data.",
                code="options-exclude-each-other",
            )
        return None
    if data is not None:
        task = task.source.switch_data(data, options.as_settings(task))
    elif options.as_settings(task):
        raise UserError(
            "--label and the options for reading a file (--text, ...) need --data.", code="options-exclude-each-other"
        )
    elif not task.data or not Path(task.data).exists():
        raise UserError(
            f"The data that {run} was fine-tuned on ({task.data or 'unknown'}) is missing. Give labelled rows for "
            "the comparison with --data FILE, or skip it with --unchecked.",
            code="missing-option",
        )
    split = "all" if data is not None and data.is_file() else "dev"
    task, by_split = load(task, (split,), fit=False)
    return task, by_split[split]


def write(engine: Engine, run: Path, folder: Path, *, int8: bool) -> None:
    """Write the model, its tokenizer and the facts of the run into a folder. UserError if it cannot be exported."""
    _require_form(engine, run)
    learner, task = engine.learner, scoring_task(engine.task)
    sentences = engine.sentence_model()
    published = task.export_metadata() if task else {}
    units = {name: published[name] for name in ("center", "scale") if name in published}
    head = learner.heads[task.name] if task else None
    learnt = head.decoding_values() if head else {}
    model = PaddedGraph(learner, task.name if task else "", pooler=engine.backend.pooler, **units)
    write_onnx(model, folder / ONNX, int8=int8, learnt=learnt, tokenizer=engine.tokenizer.fingerprint)
    sizes = learner.backbone.architecture
    write_any_tokenizer(engine.tokenizer, folder, length=engine.packer.length, segments=sizes.segments)
    if sentences:
        write_sentence_model(folder, sentences, width=sizes.width)
    for name in (*KEPT, *([RECIPE] if task is engine.task else [])):
        if (run / name).is_file():
            shutil.copyfile(run / name, folder / name)
    if (copied := RunFolder(folder)).finished:
        copied.finish(copied.facts["finished"])  # its hashes are those of the new files


def _require_form(engine: Engine, run: Path) -> None:
    task = scoring_task(engine.task)
    reasons = list(objections(engine.learner, task.name if task else ""))
    if (sentences := engine.sentence_model("mean")) and sentences.kind != "dense":
        reasons.append(f"an export computes no {sentences.kind} vectors, as this model does")
    if reasons:
        raise UserError(f"{run} cannot be exported: {' and '.join(reasons)}.", code="not-exportable")


def refuse(comparison: ExportComparison, tolerance: float) -> None:
    """Raise UserError when the export is not as good as the run."""
    drop = comparison.drop
    if drop is not None and not drop <= tolerance:  # a score that is NaN is never good enough
        raise UserError(
            f"{comparison.criterion} drops by {drop:.4f}, more than --tolerance {tolerance:g}; nothing was "
            "written. Raise --tolerance, or remove --int8.",
            code="check-failed",
        )
    if math.isnan(comparison.difference):
        raise UserError(
            "The run or the export returns values that are not finite; nothing was written.", code="not-finite"
        )
