"""The export of a run or an encoder as ONNX, compared with the original before the folder gets its name."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from osbert.errors import UserError
from osbert.files import require_free, whole_folder
from osbert.inference.engine import Engine
from osbert.inference.engine import load as load_engine
from osbert.interop.files.weight_files import ONNX
from osbert.interop.hub import default_out
from osbert.interop.onnx.files import require_writers, write_onnx
from osbert.interop.onnx.padded import PaddedGraph, objections, scoring_task
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.sentence_files import PROMPTS, write_sentence_model
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.lock import claim
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.export.comparison import ExportComparison, compare_predictions, compare_states
from osbert.runs.export.settings import ExportSettings
from osbert.runs.rows.options import LabelledOptions
from osbert.tasks import Record, Task, load
from osbert.training.run_folder import RECIPE, RunFolder

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
        engine = open_run(run, opening, watch)
        _require_form(engine, run)
        if engine.task is None and engine.writes:
            watch(Notice(f"What is exported of {run} gives states of texts; it does not write them."))
        data = None if settings.data is None else Path(settings.data)
        rows = None if settings.unchecked else development(engine, run, data, options or LabelledOptions())
        with whole_folder(claimed_path) as folder:
            write(engine, run, folder, int8=settings.int8)
            if settings.unchecked:
                return Export(folder=out)
            comparison = compare_engines(engine, load_engine(folder, opening=opening), rows)
            watch(comparison)
            refuse(comparison, settings.tolerance)
    return Export(folder=out, comparison=comparison)


def open_run(run: Path, opening: Opening, watch: Watch) -> Engine:
    """Open a run, and give notice of what is odd about its folder."""
    engine = load_engine(run, device="cpu", opening=opening)
    report_remarks(engine, watch)
    sentences = engine.sentence_model()
    for remark in sentences.remarks if sentences else ():
        watch(Notice(remark))
    return engine


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
                f"{run} is exported as an encoder, whose states are compared on pieces drawn at random: leave --data "
                "out.",
                code="options-exclude-each-other",
            )
        return None
    if data is not None:
        task = task.source.switch_data(data, options.as_settings(task))
    elif options.as_settings(task):
        raise UserError(
            "--label and how to read a file (--text, ...) go with --data.", code="options-exclude-each-other"
        )
    elif not task.data or not Path(task.data).exists():
        raise UserError(
            f"The data that {run} was fine-tuned on, {task.data or 'unknown'}, is not here. Give labelled rows to "
            "compare on, --data FILE; or --unchecked to compare nothing.",
            code="missing-option",
        )
    split = "all" if data is not None and data.is_file() else "dev"
    task, by_split = load(task, (split,), fit=False)
    return task, by_split[split]


def compare_engines(engine: Engine, exported: Engine, rows: tuple[Task, Sequence[Record]] | None) -> ExportComparison:
    """Return how the export differs from the run on the rows; without rows, in its states."""
    return compare_predictions(engine, exported, *rows) if rows else compare_states(engine, exported)


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
    if reasons := list(objections(engine.learner, task.name if task else "")):
        raise UserError(f"{run} cannot be exported: {' and '.join(reasons)}.", code="not-exportable")


def refuse(comparison: ExportComparison, tolerance: float) -> None:
    """Raise UserError when the export is not as good as the run."""
    drop = comparison.drop
    if drop is not None and not drop <= tolerance:  # a score that is NaN is never good enough
        raise UserError(
            f"{comparison.criterion} drops by {drop:.4f}, more than --tolerance {tolerance:g}; nothing was written. "
            "Allow for more, or leave --int8 out.",
            code="check-failed",
        )
    if math.isnan(comparison.difference):
        raise UserError(
            "Some of what the run or the export gives is no number; nothing was written.", code="not-finite"
        )
