"""Scores by year: one picture for each data set, and what fine-tuning is worth beside features, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from osbert.reports.page import Section, paragraph, table
from osbert_lab.papers.tables import PaperTable
from osbert_lab.papers.timeline import TimelineRow, TimelineScore, timeline
from osbert_lab.papers.verdicts import RowComparison, Scores, compare_rows
from osbert_lab.study.summaries import FEWEST, summarise

FEATURES, TUNED = "features", "fine-tuned"
"""The endings of the names of two columns of one data set."""


def by_data_set(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the columns of each data set, by the part of their names after the comma.

    >>> by_data_set(["SST-2, features", "SST-2, fine-tuned", "RTE"])
    {'SST-2': {'features': 'SST-2, features', 'fine-tuned': 'SST-2, fine-tuned'}, 'RTE': {'RTE': 'RTE'}}
    """
    columns_by_set: dict[str, dict[str, str]] = {}
    for name in names:
        data_set, comma, use = name.partition(", ")
        columns_by_set.setdefault(data_set, {})[use if comma else name] = name
    return columns_by_set


def timelines(reproduced: PaperTable, scores: Scores) -> list[str]:
    """Return a figure for each data set: the rows by year, scores in per cent with the interval over the seeds."""
    names = dict.fromkeys(name for column_scores in scores.values() for name in column_scores)
    return [
        timeline(
            [
                TimelineRow(name=row.name, year=row.year, scores=_points(scores.get(row.name, {}), columns))
                for row in reproduced.rows
            ],
            list(columns),
            title=f"{data_set}, by year",
        )
        for data_set, columns in by_data_set(list(names)).items()
    ]


def _points(column_scores: Mapping[str, Sequence[float]], columns: Mapping[str, str]) -> dict[str, TimelineScore]:
    points = {}
    for use, column in columns.items():
        if values := column_scores.get(column):
            summary = summarise([100 * value for value in values])
            low, high = summary.interval
            points[use] = TimelineScore(value=summary.mean, low=low, high=high)
    return points


def tuning_gains(scores: Scores) -> list[RowComparison]:
    """Compare fine-tuning with features, seed by seed: for every row and data set that has both."""
    gains = []
    for row, column_scores in scores.items():
        for data_set, columns in by_data_set(list(column_scores)).items():
            if {FEATURES, TUNED} <= {*columns}:
                both = {use: {f"{row}, {data_set}": column_scores[columns[use]]} for use in (TUNED, FEATURES)}
                gains += compare_rows(both, TUNED, FEATURES)
    return gains


def gains_section(scores: Scores) -> Section:
    """Return the table of what fine-tuning adds to features, a row per model and a column per data set."""
    gains = {gain.column: gain for gain in tuning_gains(scores)}
    sets = list(dict.fromkeys(name.rpartition(", ")[2] for name in gains))
    rows = [[row, *(_gain(gains.get(f"{row}, {data_set}")) for data_set in sets)] for row in scores]
    about = "Fine-tuned less features, in points, with the 95% interval where there are three seeds or more."
    return Section(
        heading="What fine-tuning adds", parts=[table(rows, head=["recipe", *sets]), paragraph(about)] if gains else []
    )


def _gain(comparison: RowComparison | None) -> str:
    if comparison is None:
        return "-"
    return f"{100 * comparison.summary.mean:+.1f}" if len(comparison.differences) < FEWEST else comparison.interval
