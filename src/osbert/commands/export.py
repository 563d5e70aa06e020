"""osbert export: a run as others run it, tried on its development rows before it gets its name."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from osbert.commands.evaluate import moved_task
from osbert.commands.file_options import FileOptions
from osbert.commands.opening_options import ModelFolder, OpeningOptions, default_out
from osbert.errors import UserError
from osbert.files import require_free, whole_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.tasks import Record, Task, load
from osbert.terminal import one_line

if TYPE_CHECKING:
    from osbert.inference.engine import Engine
    from osbert.runs.export_trial import Trial

KEPT = ("config.json", "run.json")
"""Files of a run that go along as they are, and the recipe where the task's scores do; the tokenizer's are new."""


def export(
    run: ModelFolder,
    /,
    *,
    to: Literal["onnx"],
    out: Path | None = None,
    int8: bool = False,
    tolerance: float = 0.01,
    data: Path | None = None,
    label: str = "",
    file: Annotated[FileOptions | None, Parameter(name="*")] = None,
    unchecked: bool = False,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Write a run as ONNX, with any batch and length, into a folder that needs nothing else.

    The development rows are predicted by the run and by what was exported. Metric, largest difference of the outputs,
    speed and size are shown side by side; a metric that drops by more than the tolerance is an error, and nothing is
    written. osbert predict, evaluate, embed and serve take the new folder in place of the run.

    Parameters
    ----------
    run
        A run folder of osbert's, a Hugging Face BERT folder, or a name (docs/models-by-name.md).
    to
        The form: onnx, which wants the extra onnx.
    out
        The folder to write; left open, RUN-onnx, or RUN-int8, beside the run.
    int8
        Weights of a byte each: a quarter of the size, and the faster for it; predictions change a little.
    tolerance
        How much the metric may drop, 0.01 being a point of a hundred.
    data
        Labelled rows to compare on, a file or a folder, in place of the run's own development rows.
    label
        The column with the label; found by its name when left open.
    unchecked
        Compare nothing.
    """
    from osbert.inference.engine import load as load_engine
    from osbert.interop.onnx.files import require_writers

    require_writers()
    out = out or default_out(run, f"-{'int8' if int8 else to}")
    with claim(out) as place:
        require_free(place)
        engine = opened(run, opening)
        rows = None if unchecked else development(engine, run, data, file or FileOptions(), label)
        with whole_folder(place) as folder:
            write(engine, run, folder, int8=int8)
            if unchecked:
                print(f"nothing was compared -> {out}")
                return
            trial = compared(engine, load_engine(folder, opening=opening), rows)
            for line in trial.told(int8=int8):
                print(line)
            refuse(trial, tolerance)
        print(f"-> {out}")


def opened(run: Path, opening: Opening) -> Engine:
    """Open a run and print what was odd about its folder."""
    from osbert.inference.engine import load as load_engine

    engine = load_engine(run, device="cpu", opening=opening)
    for remark in engine.remarks:
        print(f"{run}: {one_line(remark)}")
    sentences = engine.sentence_model()
    for remark in sentences.remarks if sentences else ():
        print(one_line(remark))
    return engine


def development(
    engine: Engine, run: Path, data: Path | None, options: FileOptions, label: str
) -> tuple[Task, Sequence[Record]] | None:
    """Return the rows to compare on, with the task that reads them; None where there is only an encoder.

    Raises UserError when there are none at hand.
    """
    from osbert.interop.onnx.padded import scored

    task = scored(engine.task)
    if task is None:
        if data is not None:
            raise UserError(
                f"{run} is exported as an encoder, whose states are compared on pieces drawn at random: leave --data "
                "out."
            )
        return None
    if data is not None:
        task = moved_task(task, data, options, label=label)
    elif options.given() or label:
        raise UserError("--label and how to read a file (--text, ...) go with --data.")
    elif not task.data or not Path(task.data).exists():
        raise UserError(
            f"The data that {run} was fine-tuned on, {task.data or 'not told'}, is not here. Give labelled rows to "
            "compare on, --data FILE; or --unchecked to compare nothing."
        )
    split = "all" if data is not None and data.is_file() else "dev"
    task, by_split = load(task, (split,), fit=False)
    return task, by_split[split]


def compared(engine: Engine, exported: Engine, rows: tuple[Task, Sequence[Record]] | None) -> Trial:
    """Return how the export differs from the run on the rows; without rows, in its states."""
    from osbert.runs.export_trial import states_tried, tried

    return tried(engine, exported, *rows) if rows else states_tried(engine, exported)


def write(engine: Engine, run: Path, folder: Path, *, int8: bool) -> None:
    """Write the model, its tokenizer and what tells of the run into a folder. Raises UserError where it has no form."""
    from osbert.interop.huggingface.tokenizers import write_any_tokenizer
    from osbert.interop.onnx.files import ONNX, write_onnx
    from osbert.interop.onnx.padded import PaddedGraph, objections, scored
    from osbert.interop.sentence_files import write_sentence_model
    from osbert.interop.task_files import RECIPE
    from osbert.models.contract import Head
    from osbert.training.run_folder import RunFolder

    learner, task = engine.learner, scored(engine.task)
    if reasons := list(objections(learner, task.name if task else "")):
        raise UserError(f"{run} cannot be exported: {' and '.join(reasons)}.")
    sentences = engine.sentence_model()
    published = task.published() if task else {}
    units = {name: published[name] for name in ("center", "scale") if name in published}
    head = learner.heads[task.name] if task else None
    learnt = head.learnt() if task and isinstance(head, Head) else {}
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


def refuse(trial: Trial, tolerance: float) -> None:
    """Raise UserError when the export is not as good as the run."""
    if trial.drop is not None and not trial.drop <= tolerance:  # a score that is no number is never good enough
        raise UserError(
            f"{trial.criterion} drops by {trial.drop:.4f}, more than --tolerance {tolerance:g}; nothing was written. "
            "Allow for more, or leave --int8 out."
        )
    if math.isnan(trial.difference):
        raise UserError("Some of what the run or the export gives is no number; nothing was written.")
