"""Report sections on the predictions of a task: by label, by length, by probability, and example rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from osbert.data.pack import Packer
from osbert.evaluation.bootstrap import ScoreInterval, bootstrap_interval, wilson_interval
from osbert.reports.charts import BarRow, IntervalRow, bar_plot, interval_plot, matrix_plot
from osbert.reports.examples import Answer, cards
from osbert.reports.page import Section, paragraph, table
from osbert.reports.plot import Series, line_plot
from osbert.tasks import Prediction, Record, Task
from osbert.tasks.calibration import reliability
from osbert.tasks.record import UNPAIRED, RecordOutcome, mean_score

WRONG, UNSURE = 60, 30
"""Most wrong rows shown, and most of the least certain ones."""
MOST_LABELS = 40
"""Most labels whose scores are shown, the most frequent ones."""
GROUPS, FEWEST = 4, 10
"""Number of groups of rows by length, and the fewest rows per group."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The predictions of a task for labelled records.

    `lengths`: the number of tokens of the texts of each record. `raw`: the predictions before temperature scaling, if
    it was fitted. `name`: the name of the task in headings, if there are several.
    """

    task: Task
    records: Sequence[Record]
    predictions: Sequence[Prediction]
    lengths: Sequence[int]
    raw: Sequence[Prediction] = ()
    name: str = ""

    @cached_property
    def outcomes(self) -> list[RecordOutcome]:
        """Return the outcome of each record."""
        return outcomes(self.task, self.predictions, self.records)

    def heading(self, text: str) -> str:
        """Return a heading, with the name of the task if there are several."""
        return f"{text}: {self.name}" if self.name else text


def outcomes(task: Task, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[RecordOutcome]:
    """Return the outcome of each record."""
    return [task.outcome(prediction, record) for prediction, record in zip(predictions, records, strict=True)]


def text_lengths(records: Sequence[Record], packer: Packer) -> list[int]:
    """Return the number of tokens of the texts of each record, including those that are cut off."""
    return [sum(len(packer.run(text).ids) for text in record.texts) for record in records]


def scores_table(metrics: Mapping[str, float], intervals: Mapping[str, ScoreInterval]) -> str:
    """Return the table of scores with their intervals."""
    rows = [
        (
            name,
            f"{value:.4f}",
            f"{interval.low:.4f} to {interval.high:.4f}" if (interval := intervals.get(name)) else "",
        )
        for name, value in metrics.items()
        if "/" not in name
    ]
    return table(rows, head=("score", "value", "95% interval"))


def result_sections(result: TaskResult, calibration: Sequence[str] = ()) -> Iterator[Section]:
    """Yield the sections on the predictions of a task: by label, length and probability, and examples.

    `calibration`: the sentence on the temperature, as HTML.
    """
    if pictures := [*_by_label(result)]:
        yield Section(heading=result.heading("By label"), parts=pictures)
    if by_length := _by_length(result):
        yield Section(heading=result.heading("By length"), parts=by_length)
    if diagram := [*_reliability(result), *calibration]:
        yield Section(heading=result.heading("Probabilities"), parts=diagram)
    rows = list(zip(result.records, result.outcomes))
    wrong = [row for row in rows if (row[1].right is None and row[1].error > 0) or row[1].right is False]
    wrong.sort(key=lambda row: (-row[1].error, -(row[1].confidence or 0)))
    note = "The rows with the largest errors come first." if wrong else "No row is wrong."
    examples = [(record, [Answer(outcome=outcome)]) for record, outcome in wrong[:WRONG]]
    heading = "Wrong" if any(outcome.right is not None for outcome in result.outcomes) else "Farthest off"
    yield cards(result.heading(heading), examples, note=note, total=len(wrong))
    unsure = [row for row in rows if row[1].confidence is not None]
    if unsure and result.task.weighed:
        unsure.sort(key=lambda row: row[1].confidence or 0)
        note = "The rows of which the model is least sure, right or wrong."
        examples = [(record, [Answer(outcome=outcome)]) for record, outcome in unsure[:UNSURE]]
        yield cards(result.heading("Least sure"), examples, note=note)


def _by_label(result: TaskResult) -> Iterator[str]:
    numbers = sorted([outcome.numbers for outcome in result.outcomes if outcome.numbers])
    if numbers and numbers[0][0] != numbers[-1][0]:  # two labels or more
        ends = (numbers[0][0], numbers[-1][0])
        series = [
            Series(name="predicted", points=numbers, look="dots"),
            Series(name="as labelled", points=[(end, end) for end in ends], color=5),
        ]
        yield line_plot(series, title="Predictions by label", across="label")
    pairs = [pair for outcome in result.outcomes for pair in outcome.pairs]
    if not pairs:
        return
    mixed = [pair for pair in pairs if pair[0] != pair[1]]
    if not mixed or any(UNPAIRED not in pair for pair in mixed):  # else nothing is taken for another label
        yield matrix_plot(pairs, title="Confusion matrix")
    true, guessed = [Counter([pair[side] for pair in pairs if pair[side]]) for side in (0, 1)]
    hits = Counter([label for label, guess in pairs if label == guess])
    frequent = [label for label, _ in (true + guessed).most_common(MOST_LABELS)]
    labels = sorted(frequent)
    for title, counts in (("Recall by label", true), ("Precision by label", guessed)):
        rows = [
            IntervalRow(
                name=label,
                value=hits[label] / counts[label],
                interval=wilson_interval(hits[label], counts[label]),
                note=f"{hits[label]:,}/{counts[label]:,}",
            )
            for label in labels
            if counts[label]
        ]
        yield interval_plot(rows, title=f"{title}, 95% intervals (Wilson)", ends=(0, 1))
    cells = [
        (label, f"{true[label]:,}", f"{guessed[label]:,}", f"{2 * hits[label] / (true[label] + guessed[label]):.4f}")
        for label in labels
    ]
    yield table(cells, head=("label", "true", "predicted", "F1"))
    if left := len({*true, *guessed}) - len(labels):
        yield paragraph(f"{left:,} rarer labels are left out.")


def _by_length(result: TaskResult) -> list[str]:
    lengths = np.array(result.lengths)
    if len(lengths) < GROUPS * FEWEST or not np.ptp(lengths):
        return []
    scores = np.array([outcome.score for outcome in result.outcomes])
    # Quartiles as actual lengths; equal ones coincide, which leaves fewer groups.
    edges = np.unique(np.quantile(lengths, np.arange(1, GROUPS) / GROUPS, method="higher"))
    groups = np.searchsorted(edges, lengths)
    rows = []
    for group in np.unique(groups):
        group_scores = scores[groups == group]
        low, high = lengths[groups == group].min(), lengths[groups == group].max()
        counted = group_scores[~np.isnan(group_scores)]
        rows.append(
            IntervalRow(
                name=f"{low:,} to {high:,}" if high > low else f"{low:,}",
                value=float(counted.mean()) if len(counted) else math.nan,
                interval=bootstrap_interval(group_scores.tolist()),
                note=f"{len(group_scores):,} rows",
            )
        )
    score = result.task.row_score
    title = f"{score[0].upper()}{score[1:]} by tokens of a row, 95% intervals (bootstrap)"
    return [interval_plot(rows, title=title, mark=mean_score(result.outcomes))]


def _reliability(result: TaskResult) -> list[str]:
    beliefs = [belief for outcome in result.outcomes for belief in outcome.beliefs]
    if not result.task.weighed or len(beliefs) < FEWEST:
        return []
    bins = reliability(beliefs)
    series = [
        Series(name="as sure as right", points=[(0, 0), (1, 1)], color=5),
        Series(name="predictions", points=[(bucket.probability, bucket.rate) for bucket in bins], look="dots"),
    ]
    if result.raw:
        raw = [belief for outcome in outcomes(result.task, result.raw, result.records) for belief in outcome.beliefs]
        points = [(bucket.probability, bucket.rate) for bucket in reliability(raw)]
        series.append(Series(name="before the temperature", points=points, look="dots", color=1))
    rows = [BarRow(name=f"{bucket.low:.0%} to {bucket.high:.0%}", values=[bucket.count]) for bucket in bins]
    return [
        line_plot(series, title="Rate of right ones by probability", percent=True, across="probability"),
        bar_plot(rows, [""], title="Predictions by probability", percent=False),
    ]
