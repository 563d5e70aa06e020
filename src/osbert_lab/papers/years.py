"""Scores by year: one picture for each data set, and what fine-tuning is worth beside features, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from osbert.evaluation.compare import FEWEST, summarise
from osbert.reports.page import Section, paragraph, table
from osbert_lab.papers.tables import PaperTable
from osbert_lab.papers.timeline import TimelineRow, TimelineScore, timeline
from osbert_lab.papers.verdicts import RowComparison, Scores, compared

FEATURES, TUNED = "features", "fine-tuned"
"""The endings of the names of two columns of one data set."""


def by_data_set(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the columns of each data set, by the part of their names after the comma.

    >>> by_data_set(["SST-2, features", "SST-2, fine-tuned", "RTE"])
    {'SST-2': {'features': 'SST-2, features', 'fine-tuned': 'SST-2, fine-tuned'}, 'RTE': {'RTE': 'RTE'}}
    """
    found: dict[str, dict[str, str]] = {}
    for name in names:
        data_set, comma, use = name.partition(", ")
        found.setdefault(data_set, {})[use if comma else name] = name
    return found


def timelines(reproduced: PaperTable, scores: Scores) -> list[str]:
    """Return a figure for each data set: the rows by year, scores in per cent with the interval over the seeds."""
    names = dict.fromkeys(name for found in scores.values() for name in found)
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


def _points(found: Mapping[str, Sequence[float]], columns: Mapping[str, str]) -> dict[str, TimelineScore]:
    points = {}
    for use, column in columns.items():
        if values := found.get(column):
            summary = summarise([100 * value for value in values])
            low, high = summary.interval
            points[use] = TimelineScore(value=summary.mean, low=low, high=high)
    return points


def tuning_gains(scores: Scores) -> list[RowComparison]:
    """Compare fine-tuning with features, seed by seed: for every row and data set that has both."""
    gains = []
    for row, found in scores.items():
        for data_set, columns in by_data_set(list(found)).items():
            if {FEATURES, TUNED} <= {*columns}:
                both = {use: {f"{row}, {data_set}": found[columns[use]]} for use in (TUNED, FEATURES)}
                gains += compared(both, TUNED, FEATURES)
    return gains


def gains_section(scores: Scores) -> Section:
    """Return the table of what fine-tuning adds to features, a row per model and a column per data set."""
    found = {one.column: one for one in tuning_gains(scores)}
    sets = list(dict.fromkeys(name.rpartition(", ")[2] for name in found))
    rows = [[row, *(_gain(found.get(f"{row}, {one}")) for one in sets)] for row in scores]
    about = "Fine-tuned less features, in points, with the 95% interval where there are three seeds or more."
    return Section(
        heading="What fine-tuning adds", parts=[table(rows, head=["recipe", *sets]), paragraph(about)] if found else []
    )


def _gain(one: RowComparison | None) -> str:
    if one is None:
        return "-"
    return f"{100 * one.summary.mean:+.1f}" if len(one.differences) < FEWEST else one.interval
