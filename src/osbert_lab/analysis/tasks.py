"""Analyses in tasks: each task opens the model and the data anew, and computes a few of the analyses."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from osbert.corpus.task_options import TaskPlan
from osbert.runs.contract import Watch, ignore
from osbert_lab.analysis.opened_model import AnalysisProgress, AnalysisSource, OpenedAnalysis, figures_path, kinds_of
from osbert_lab.executors.row_tasks import RowRange, RowTasks, require_facts


@dataclass(frozen=True, kw_only=True)
class AnalysisWork:
    """The work on a range of `names`, the analyses that apply. `facts`: of the model and the data of the command."""

    source: AnalysisSource
    facts: Mapping[str, Any]
    names: Sequence[str]

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths of the model and of the data."""
        return self.source.model, self.source.data

    def __call__(self, rows: RowRange, folder: Path) -> None:
        """Write the figures of the analyses in the range into `folder`, which may hold some of a killed task."""
        opened = OpenedAnalysis.open(self.source, ignore)
        # The same folder by another path has another name.
        require_facts(opened.facts, {**self.facts, "model": opened.about["model"]}, self.source.data.name)
        names = self.names[rows.start : rows.stop]
        missing = [name for name in names if not figures_path(folder, name).is_file()]
        opened.compute(kinds_of(missing), folder, ignore)


def compute_in_tasks(work: AnalysisWork, plan: TaskPlan, folder: Path, watch: Watch) -> None:
    """Compute all analyses of `work` in tasks, by default one each, and put their figures into `folder`.

    Raises UserError if a task fails, and with the code tasks-pending while a cluster works on them.
    """
    source = work.source
    work = replace(work, source=replace(source, model=source.model.absolute(), data=source.data.absolute()))
    tasks = RowTasks(plan=replace(plan, tasks=plan.tasks or len(work.names)), folder=folder)

    def report(done: int, count: int) -> None:
        watch(AnalysisProgress(done=done, count=count, what="analyses"))

    for rows, part in tasks.run(work, lambda: [[name] for name in work.names], report):
        for name in work.names[rows.start : rows.stop]:
            shutil.copyfile(figures_path(part, name), figures_path(folder, name))
