"""A figure of the paper with our curves: fine-tuning scores by step of pretraining, as a table and a plot."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from osbert.files import write_json, write_text
from osbert.reports.page import Section, code, paragraph, table, write_report
from osbert.reports.plot import Series, line_plot
from osbert.terminal import in_columns
from osbert.training.run_folder import RunFolder
from osbert_lab.papers.plan import PROTOCOL, TablePlan
from osbert_lab.papers.report import describe_collapses, row_scores
from osbert_lab.papers.verdicts import TOO_FEW, RowComparison, format_mean
from osbert_lab.study.summaries import FEWEST, summarise

REPORT = "report.html"
APART = 0.01
"""Horizontal distance between two curves' points of the same step, as a fraction of the last step."""
PROTOCOL_SAID = (
    "Each curve is one pretraining, whose model of each step is fine-tuned with every seed; so an interval holds the "
    "chance of fine-tuning, and not that of pretraining. Scores are those of the best epoch on the development rows."
)


@dataclass(frozen=True, kw_only=True)
class StepCurve:
    """Fine-tuning scores of one pretraining by step, one per seed."""

    name: str
    scores: Mapping[int, Sequence[float]]


def write_figure_report(plan: TablePlan) -> str:
    """Write results.json, table.txt and report.html after all runs have ended; return the text of the table."""
    protocol, published = json.loads((plan.out / PROTOCOL).read_text("utf-8")), plan.table.published
    curves_by_column = {name: _curves(plan, name) for column in plan.columns for name in column.measured}
    scores = {name: {curve.name: curve.scores for curve in curves} for name, curves in curves_by_column.items()}
    write_json(plan.out / "results.json", {"protocol": protocol, "scores": scores})
    first = plan.table.rows[0]
    lead = (
        f"Ours: {plan.encoders.describe(first, plan.out)}, {plan.scale.seeds} seeds of fine-tuning; "
        f"{protocol['finetuning']}. Scores are in per cent; in brackets the 95% interval of the mean."
    )
    paper_lines = [f"The paper: {statement}" for statement in published.statements]
    lines, sections = [published.title, "", lead, "", *paper_lines], []
    remarks = [*([plan.whole] if plan.whole else []), *(f"Collapsed: {line}." for line in describe_collapses(plan))]
    for name, curves in curves_by_column.items():
        sentences, rows = [*_sentences(name, curves), *remarks], _rows(curves)
        lines += ["", f"{name}, ours", *in_columns(rows, indent=""), *sentences]
        head, *body = rows
        parts = [_picture(name, curves), table(body, head=head), *map(paragraph, sentences)]
        sections.append(Section(heading=f"{name}, ours", parts=parts))
    text = "\n".join(lines) + "\n"
    write_text(plan.out / "table.txt", text)
    sections += [
        Section(heading="What the paper says", parts=[*map(paragraph, published.statements)]),
        Section(heading="How to read this", parts=[paragraph(PROTOCOL_SAID)]),
        Section(heading="Settings of pretraining", parts=[code(json.dumps(protocol["pretraining"], indent=1))]),
    ]
    write_report(plan.out / REPORT, published.title, sections, lead=lead)
    return f"{text}The report is {plan.out / REPORT}.\n"


def _curves(plan: TablePlan, column: str) -> list[StepCurve]:
    """Return a column's curve for each pretraining, steps in order; points that were not measured are left out."""
    curves = []
    for last in (row for row in plan.table.rows if not row.encoder):
        rows = [row for row in plan.table.rows if row.encoder == last.name]
        steps = RunFolder(plan.encoders.folder(last, 0, plan.out)).facts["settings"]["training"]["steps"]
        # The last row has step 0, its pretraining's end: give it the real number of steps.
        measured = {row.step or steps: row_scores(plan, row).get(column, []) for row in (*rows, last)}
        curves.append(StepCurve(name=last.name, scores={step: scores for step, scores in measured.items() if scores}))
    return curves


def _rows(curves: Sequence[StepCurve]) -> list[list[str]]:
    rows = [["step", *(curve.name for curve in curves)]]
    for step in sorted({step for curve in curves for step in curve.scores}):
        rows.append([f"{step:,}", *(format_mean(curve.scores.get(step, [])) for curve in curves)])
    return rows


def _picture(name: str, curves: Sequence[StepCurve]) -> str:
    """Return a plot of the curves of means, with a vertical line per interval; curves are shifted so that none hides
    another."""
    series = []
    apart = APART * max(step for curve in curves for step in curve.scores)
    for index, curve in enumerate(curves):
        shift = apart * (index - len(curves) + 1)
        numbers = {step + shift: summarise(scores) for step, scores in curve.scores.items()}
        means = [(step, summary.mean) for step, summary in numbers.items()]
        series.append(Series(name=curve.name, points=means, color=index))
        for step, summary in numbers.items():
            if summary.count >= FEWEST:
                ends = [(step, end) for end in summary.interval]
                series.append(Series(name="", points=ends, color=index))
    return line_plot(series, title=f"{name} by steps of pretraining", percent=True)


def _sentences(column: str, curves: Sequence[StepCurve]) -> Iterator[str]:
    """Yield where the curves differ, and how much the second half of the steps gains."""
    if any(len(scores) < FEWEST for curve in curves for scores in curve.scores.values()):
        yield TOO_FEW
        return
    for first, other in itertools.combinations(curves, 2):
        for step in first.scores:
            if step in other.scores:
                yield str(_difference(first, step, other, step, column))
    for curve in curves:
        last = max(curve.scores)
        # The measured step nearest to the middle.
        half = min(curve.scores, key=lambda step: abs(step - last / 2))
        if half < last:
            yield str(_difference(curve, last, curve, half, column))


def _difference(curve: StepCurve, step: int, other: StepCurve, before: int, column: str) -> RowComparison:
    return RowComparison(
        above=f"{curve.name} at step {step:,}",
        below=f"{other.name} at step {before:,}",
        column=column,
        differences=[score - other_score for score, other_score in zip(curve.scores[step], other.scores[before])],
    )
