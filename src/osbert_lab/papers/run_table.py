"""Runs a table, figure, comparison or analysis and writes its report; a comparison's also after each of its runs."""

from __future__ import annotations

from osbert.runs.contract import Watch, ignore
from osbert_lab.papers.analysis_runs import AnalysisPlan
from osbert_lab.papers.families import write_families_report
from osbert_lab.papers.figure import write_figure_report
from osbert_lab.papers.plan import TablePlan
from osbert_lab.papers.report import write_table_report
from osbert_lab.study.runner import TrialEnd


def run_and_report(plan: TablePlan | AnalysisPlan, watch: Watch = ignore) -> str:
    """Run everything that is not finished, and write the results; return them as text. Raises UserError as `run`."""
    if not isinstance(plan, TablePlan):
        plan.run(watch=watch)
        return plan.text
    plan.run(watch=_with_reports(plan, watch) if plan.table.recipes else watch)
    return write_report(plan)


def write_report(plan: TablePlan) -> str:
    """Write the results of a table, figure or comparison, as far as it was run; return them as text."""
    if (
        plan.table.recipes
    ):  # rows that are recipes of their own are compared with each other, not with a paper's figures
        return write_families_report(plan)
    return (write_figure_report if plan.table.curves else write_table_report)(plan)


def _with_reports(plan: TablePlan, watch: Watch) -> Watch:
    """Return a watch that also writes the report after each fine-tuning: a comparison may take hours, or be stopped."""

    def watch_and_report(event: object) -> None:
        watch(event)
        if isinstance(event, TrialEnd) and event.result.finished and event.result.trial.kind:
            write_report(plan)

    return watch_and_report
