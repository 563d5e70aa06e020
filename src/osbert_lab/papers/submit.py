"""The submission file for GLUE's evaluation server: predictions of fine-tuned runs for the test sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from osbert import components, recipe
from osbert.errors import Problems, UserError
from osbert.files import replace_file, require_file
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.task_files import read_task
from osbert.lock import claim
from osbert.reading.table import Origin
from osbert.runs.contract import Notice, Watch, ignore
from osbert.tasks import Record, Task
from osbert.tasks.tables import TableTask
from osbert.training.run_folder import RECIPE, RunFolder
from osbert_lab.papers.glue import SETS, SUBMISSION, SubmissionFile

AX = ("ax", "diagnostic")
"""Names of the diagnostic set's folder, in lower case."""


def submit(
    runs: Path,
    *,
    out: Path,
    data: Path | None = None,
    partial: bool = False,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> None:
    """Write the server's zip file: each set predicted with the run of its task, the diagnostic set with that of mnli.

    `runs`: a folder of runs. `data`: the folder with GLUE's sets; left open, each run's own data. `partial`: write the
    files that can be made, although the server wants all. Raises UserError, before anything is predicted, that names
    what cannot be made with the reason.
    """
    if out.suffix.lower() != ".zip":
        raise UserError(f"{out}: GLUE's server takes a .zip file. Give --out glue.zip.", code="unknown-output-format")
    require_file(out)
    runs_by_task = find_runs(runs, opening)

    from osbert.runs.finetune.model import (
        ModelReader,  # late: it takes seconds, which a folder that is missing need not
    )

    rows: dict[str, list[Record]] = {}
    missing: list[str] = []
    problems = Problems(heading="The submission cannot be made")
    for wanted in SUBMISSION:
        try:
            rows[wanted.file] = test_rows(wanted, runs_by_task, data)
            run = runs_by_task[wanted.task]
            ModelReader.of(run.folder).check(run.task, {wanted.split: rows[wanted.file]})
        except MissingFile as error:
            missing.append(f"  {wanted.file}: {error}")
        except UserError as error:
            problems.add_from(wanted.file, error)
    problems.stop_if_any()
    if not rows:
        raise UserError("\n".join(["Not one of the server's files can be made:", *missing]), code="missing-file")
    if missing and not partial:
        summary = (
            f"{len(missing)} of the server's {len(SUBMISSION)} files cannot be made. Nothing was written; --partial"
        )
        raise UserError("\n".join([f"{summary} writes the others:", *missing]), code="missing-file")
    with claim(out) as output_path:
        possible = [submission_file for submission_file in SUBMISSION if submission_file.file in rows]
        pages: dict[str, str] = {}
        for submission_file in possible:
            folder = runs_by_task[submission_file.task].folder
            pages[submission_file.file] = page(submission_file, folder, rows[submission_file.file], opening)
            watch(Notice(f"{submission_file.file}: {len(rows[submission_file.file]):,} rows, {folder}"))
        replace_file(output_path, lambda aside: write_zip(aside, pages))
    watch(Notice(f"{len(pages)} of {len(SUBMISSION)} files -> {out}"))
    if missing:
        watch(Notice("\n".join(["Missing, and the server wants all:", *missing])))


@dataclass(frozen=True, kw_only=True)
class GlueRun:
    """A finished run and its fine-tuning task."""

    folder: Path
    task: Task


class MissingFile(Exception):
    """A file of the submission cannot be made because its run or its test rows are missing."""


def find_runs(runs: Path, opening: Opening = CAREFUL) -> dict[str, GlueRun]:
    """Return the finished runs of GLUE's sets in a folder, or the folder itself if it is one, by their tasks' names.

    Runs of other tasks are not opened. Raises UserError when there is none, or when two are of one task.
    """
    if not runs.is_dir():
        raise UserError(f"{runs}: there is no such folder.", code="missing-file")
    runs_by_task: dict[str, GlueRun] = {}
    wanted = {one.task for one in SUBMISSION}
    # The folder may be a run itself.
    for folder in [runs, *sorted(path for path in runs.iterdir() if path.is_dir())]:
        path = folder / RECIPE
        name = str(recipe.read(path).get("task", "")) if path.is_file() else ""
        if name.rpartition(".")[2] not in wanted or not RunFolder(folder).finished:
            continue
        task = read_task(folder, opening)
        assert task is not None  # its recipe names one
        if task.name in runs_by_task:
            raise UserError(
                f"{runs_by_task[task.name].folder} and {folder} are both runs of {task.name}. Remove one of them "
                "from the command.",
                code="duplicate-name",
            )
        runs_by_task[task.name] = GlueRun(folder=folder, task=task)
    if not runs_by_task:
        sets = ", ".join(sorted(wanted))
        raise UserError(f"{runs} contains no finished run of a GLUE set ({sets}).", code="not-a-model")
    return runs_by_task


def page(wanted: SubmissionFile, folder: Path, records: Sequence[Record], opening: Opening = CAREFUL) -> str:
    """Return a file of the submission: the predictions of the run in `folder` for its rows."""
    from osbert.inference.engine import load

    engine = load(folder, opening=opening)
    labels = getattr(engine.fine_tuned, "labels", ())
    lines = ["index\tprediction"]
    for record, prediction in zip(records, engine.predict_records(records), strict=True):
        lines.append(f"{record.number}\t{wanted.format_prediction(prediction, labels)}")
    return "\n".join(lines) + "\n"


def test_rows(wanted: SubmissionFile, runs_by_task: Mapping[str, GlueRun], data: Path | None) -> list[Record]:
    """Return the rows to predict. Raises MissingFile if there are none, UserError if they are unusable."""
    if wanted.task not in runs_by_task:
        raise MissingFile(f"there is no run of {wanted.task}")
    kind: type[TableTask] = components.find("tasks", wanted.rows or wanted.task, base=TableTask)
    reason = "its folder is not there"
    for folder in candidate_folders(wanted, Path(runs_by_task[wanted.task].task.data), data):
        problems = Problems(heading=f"{folder} cannot be used")
        # Read as the set is published: what the run's own files were like does not matter here.
        task = dataclasses.replace(kind(), data=str(folder))
        try:
            records = list(every_row(task, task.source.file(wanted.split), problems))
        except UserError as error:
            reason = str(error)
            continue
        problems.stop_if_any()
        return records
    raise MissingFile(reason)


def every_row(task: Task, path: Origin, problems: Problems) -> Iterator[Record]:
    """Yield all records of a file; their indices are the server's ids. A column of labels is ignored."""
    for number, (row, record) in enumerate(task.source.inputs(path).rows(problems)):
        if record is None:
            problems.add(
                f"{path}, line {row.line}: the text is empty, but GLUE's server expects a prediction for every "
                "row. Fill it in.",
                code="empty-text",
            )
        else:
            yield dataclasses.replace(record, number=number)


def candidate_folders(wanted: SubmissionFile, run_data: Path, data: Path | None) -> Iterator[Path]:
    """Yield candidate folders of the rows: the set's in `data`, else the run's `run_data`; AX is stored beside MNLI."""
    run_data = run_data if run_data.is_dir() else run_data.parent
    if not wanted.rows:
        (glue,) = [glue for glue in SETS if glue.task == wanted.task]
        folder = glue.folder(data) if data else run_data
        yield from [folder] if folder else []
        return
    around = data or run_data.parent
    yield from (path for path in sorted(around.iterdir()) if path.is_dir() and path.name.lower() in AX)
    yield run_data


def write_zip(path: Path, pages: dict[str, str]) -> None:
    """Write the files into a zip that is reproducible byte for byte."""
    with ZipFile(path, "w", compression=ZIP_DEFLATED) as archive:
        for name, text in pages.items():
            # A ZipInfo has a constant date (1980), so equal predictions give equal bytes.
            archive.writestr(ZipInfo(name), text, compress_type=ZIP_DEFLATED)
