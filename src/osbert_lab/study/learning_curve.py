"""The learning curve of a fine-tuning: runs on parts of the training rows, in the report of the run on all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from osbert.errors import Problems, UserError
from osbert.files import write_text
from osbert.reports.page import END, Section, paragraph, table
from osbert.reports.plot import Series, line_plot
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.finetune import finetune as steps
from osbert.runs.finetune.defaults import fill_open
from osbert.runs.finetune.plan import FinetunePlan
from osbert.runs.finetune.records import Splits
from osbert.tasks import Record
from osbert.training.interruption import Interruption
from osbert.training.run_folder import RunFolder
from osbert_lab.study.runner import Study, StudyTrial, TrialResult

CURVE_PARTS = (8, 4, 2)
"""Divisors of the number of training rows."""
CURVE_FOLDER = "learning-curve"
"""Folder of these runs, in the folder of the run on all rows."""
LEAST_ROWS = 4
"""Fewest rows of a part."""


def learning_curve(
    plan: FinetunePlan, records: Sequence[Splits], out: Path, watch: Watch = ignore, wish: Interruption | None = None
) -> None:
    """Fine-tune on parts of the training rows, and add the curve to the report of the finished run in `out`.

    The parts are 1/8, 1/4 and 1/2 of the rows, each within the larger ones. Each run has the defaults for its number of
    rows, the same development rows, and a folder below the run's own, so that a stopped curve can be resumed. A part
    whose run fails, such as by infinite losses, is reported and left out. `plan`: of a run of one task, before its
    defaults were filled in.
    """
    [task_splits] = records
    teaching = [record for record in task_splits["train"] if not plan.task.lacks(record)]
    if len(teaching) < LEAST_ROWS * CURVE_PARTS[0]:
        raise UserError(
            f"--learning-curve needs {LEAST_ROWS * CURVE_PARTS[0]} training rows or more, not {len(teaching)}.",
            code="too-little-data",
        )
    plan = dataclasses.replace(plan, opening=plan.opening.again)
    # The parts are prefixes of one permutation, so each contains the smaller ones.
    order = np.random.Generator(np.random.PCG64(plan.training.seed)).permutation(len(teaching))

    def train(trial: StudyTrial) -> None:
        training_rows: Sequence[Record] = trial.settings
        splits: Splits = {**task_splits, "train": training_rows}
        trial_plan = fill_open(plan, [training_rows], [task_splits["dev"]], trial.folder, watch)
        model = steps.start(trial_plan)
        steps.train(trial_plan, steps.lay_out(trial_plan, [splits], model, watch), model, trial.folder, watch, wish)

    trials = []
    for part in CURVE_PARTS:
        rows = [teaching[index] for index in sorted(order[: len(teaching) // part].tolist())]
        name = f"1/{part} of the training rows ({len(rows):,})"
        trials.append(StudyTrial(name=name, folder=out / CURVE_FOLDER / f"1-{part}", settings=rows))
    failed = Problems(heading="Parts of the learning curve")
    results = Study(work=train, watch=watch, problems=failed).run(trials)
    for message in failed.messages:
        watch(Notice(f"not in the learning curve: {message}", warning=True))
    points = {len(result.trial.settings): result.metrics for result in results if result.best}
    points[len(teaching)] = RunFolder(out).facts["finished"]["best"]["metrics"]
    criterion = plan.task.criterion
    for count, metrics in points.items():
        watch(Notice(f"{count:,} rows: dev {criterion} {metrics[criterion]:.4f}"))
    add_section(out / "report.html", _curve_section(points, criterion, results))


def add_section(path: Path, section: Section) -> None:
    """Append a section to a report, or replace the one with its heading; it must have no script."""
    text = path.read_text(encoding="utf-8")
    begin = text.find(f'<section id="{escape(section.name)}">')
    end = text.rindex(END) if begin < 0 else text.index("</section>", begin) + len("</section>")
    before = text[: end if begin < 0 else begin].rstrip("\n")
    write_text(path, f"{before}\n{section.html()}{text[end:]}")


def _curve_section(
    points: Mapping[int, Mapping[str, float]], criterion: str, results: Sequence[TrialResult]
) -> Section:
    curve = Series(name=criterion, points=[(count, metrics[criterion]) for count, metrics in points.items()])
    dots = dataclasses.replace(curve, name="", look="dots")
    names = [
        name for name in points[max(points)] if "/" not in name and all(name in metrics for metrics in points.values())
    ]
    cells = [(f"{count:,}", *(f"{metrics[name]:.4f}" for name in names)) for count, metrics in points.items()]
    explanation = (
        "One run for each number of rows, each with the defaults that suit it, scored on the same development rows. "
        "Where the curve still climbs at its end, more rows are likely to help."
    )
    if failed := [result.trial.name for result in results if not result.best]:
        explanation += f" Without a score, for their runs failed: {', '.join(failed)}."
    parts = [line_plot([curve, dots], title=f"{criterion} by training rows", across="training rows")]
    return Section(
        heading="Learning curve", parts=[*parts, table(cells, head=("rows", *names)), paragraph(explanation)]
    )
