"""Several fine-tuned runs on the same labelled rows: their scores, tests of each pair, and the rows they differ on."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.evaluation.bootstrap import (
    McNemar,
    ScoreDifference,
    bootstrap,
    bootstrap_means,
    holm,
    mcnemar,
    percentiles,
    score_difference,
    uniform_interval,
)
from osbert.files import require_file
from osbert.lock import claim
from osbert.reading.memory import Data
from osbert.reports.charts import IntervalRow, interval_plot
from osbert.reports.examples import Answer, cards
from osbert.reports.outcomes import outcomes
from osbert.reports.page import Section, paragraph, table, write_report
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.evaluate import Evaluation, EvaluationOptions, evaluate
from osbert.tasks import Record
from osbert.tasks.record import RecordOutcome, mean_score
from osbert.terminal import in_columns

SHOWN = 100
"""Most differing rows that the page shows."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A compared run: its scores by name, the 95% interval of the criterion and its `method`, and its predictions."""

    reported: ClassVar[tuple[str, ...]] = ("name", "metrics", "interval")

    name: str
    metrics: dict[str, float]
    interval: tuple[float, float]
    method: Literal["bootstrap", "Wilson"] = "bootstrap"
    outcomes: Sequence[RecordOutcome] = dataclasses.field(repr=False)


@dataclass(frozen=True, kw_only=True)
class PairTest:
    """Two runs tested against each other.

    `score`: the difference of their criteria. `right`: McNemar's test; None if predictions are not right or wrong.
    `p_values`: of both tests, with Holm's correction for the number of pairs.
    """

    first: str
    second: str
    score: ScoreDifference
    right: McNemar | None
    p_values: tuple[float, float] = (math.nan, math.nan)


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """The result of a comparison of runs. `differing`: rows with different predictions, largest disagreement first.

    >>> found = osbert.compare(["run", "run"], data="more.csv")
    >>> found.criterion, found.tests[0].right.p_value, len(found.differing)
    ('accuracy', 1.0, 0)
    """

    reported: ClassVar[tuple[str, ...]] = ("rows", "criterion", "runs", "tests", "differing")

    criterion: str
    runs: Sequence[ComparedRun]
    tests: Sequence[PairTest]
    records: Sequence[Record] = dataclasses.field(repr=False)

    @property
    def rows(self) -> int:
        """The number of rows that the runs were scored on."""
        return len(self.records)

    @property
    def differing(self) -> list[int]:
        """The indices of the rows with different predictions."""

        def spread(row: int) -> float:
            errors = [run.outcomes[row].error for run in self.runs]
            return max(errors) - min(errors)

        rows = [row for row in range(len(self.records)) if len({run.outcomes[row].guess for run in self.runs}) > 1]
        return sorted(rows, key=lambda row: -spread(row))

    def scores(self) -> list[list[str]]:
        """Return the table of scores, header first, a row per run."""
        # Metrics with a slash are those of single labels. The criterion is first, with its interval behind it.
        others = [name for name in self.runs[0].metrics if "/" not in name and name != self.criterion]
        rows = [
            [
                run.name,
                f"{run.metrics[self.criterion]:.4f}",
                "{:.4f} to {:.4f}".format(*run.interval),
                *(f"{run.metrics[name]:.4f}" if name in run.metrics else "" for name in others),
            ]
            for run in self.runs
        ]
        return [["run", self.criterion, "95% interval", *others], *rows]

    def pairs(self) -> list[list[str]]:
        """Return the table of tests, header first, a row per pair of runs; empty columns are left out."""
        tested = any(test.right for test in self.tests)
        p_values = ["p (bootstrap)", "p (McNemar)"] if tested else ["p (bootstrap)"]
        counts = ["only first right", "only second right"] if tested else []
        rows = []
        for test in self.tests:
            cells = [f"{test.first} - {test.second}", f"{test.score.difference:+.4f}"]
            cells += [_p_value(p_value) for p_value in test.p_values[: 1 + (test.right is not None)]]
            cells.append("{:+.4f} to {:+.4f}".format(*test.score.interval))
            if test.right:
                cells += [f"{test.right.only_first:,}", f"{test.right.only_second:,}"]
            rows.append(cells)
        return [["runs", "difference", *p_values, "95% interval", *counts], *rows]

    def lines(self) -> list[str]:
        """Both tables and their remarks as lines of text."""
        summary = f"The runs answer {len(self.differing):,} of {self.rows:,} rows differently."
        return [*in_columns(self.scores()), "", *in_columns(self.pairs()), "", self.method(), summary]

    def method(self) -> str:
        """Describe how the tests were made."""
        right = " McNemar's test is the exact one, two-sided." if any(test.right for test in self.tests) else ""
        uniform = any(run.method == "Wilson" for run in self.runs)
        wilson = " The interval of a run whose rows are all right, or all wrong, is Wilson's." if uniform else ""
        pairs = len(self.tests)
        several = f" The p-values are corrected for {pairs} pairs by Holm's method." if pairs > 1 else ""
        return (
            f"Intervals and differences of {self.criterion}: percentile bootstrap over {len(self.records):,} rows, the "
            f"same samples for all runs.{wilson}{right}{several} They say how far other rows could change the result, "
            "not another seed."
        )


def compare(
    runs: Sequence[Path],
    *,
    data: Data,
    split: str = "dev",
    out: Path | None = None,
    options: EvaluationOptions | None = None,
    watch: Watch = ignore,
) -> RunComparison:
    """Score fine-tuned runs on the same labelled rows and test each pair of them; write a page to `out`, if given.

    `data` and `split` are as for `evaluate`. Runs are compared by the first one's criterion. Raises UserError for fewer
    than two runs, if they read different texts or labels in the data, or if a run lacks the criterion.
    """
    if len(runs) < 2:
        raise UserError("Give at least two runs to compare: osbert compare RUN RUN --data FILE.", code="missing-value")
    if out is not None:
        require_file(out, [Path(data)] if isinstance(data, str | Path) else [])
        if out.suffix.lower() not in ("", ".html"):
            raise UserError(
                f"{out}: the output is an HTML page. Give a file name that ends in .html.", code="unknown-output-format"
            )
    data = list(data) if isinstance(data, Iterator) else data  # every run reads it
    with nullcontext(None) if out is None else claim(out) as claimed:
        once = _once(watch)  # the notices on the data are the same for each run
        names = run_names(runs)
        evaluations: list[Evaluation] = []
        for name, run in zip(names, runs, strict=True):
            try:
                evaluations.append(evaluate(run, data=data, split=split, options=options, watch=once))
            except UserError as error:
                if not evaluations:  # what the first run reads without an error is not the data's fault alone
                    raise
                raise UserError(f"{name}: {error}", code=error.code, codes=error.codes) from error
        comparison = compare_evaluations(names, evaluations)
        if claimed is not None:
            comparison_report(claimed, comparison)
    return comparison


def run_names(runs: Sequence[Path]) -> list[str]:
    """Return short names for runs: their folders' names, or their paths if two folders have the same name.

    >>> run_names([Path("a/run"), Path("b/run")])
    ['a/run', 'b/run']
    """
    names = [run.absolute().name for run in runs]
    return names if len({*names}) == len(names) else [str(run) for run in runs]


def compare_evaluations(names: Sequence[str], evaluations: Sequence[Evaluation]) -> RunComparison:
    """Compare runs that were scored on the same rows. Raises UserError if the rows differ."""
    first = evaluations[0]
    for name, other in zip(names[1:], evaluations[1:]):
        _refuse_others(names[0], first, name, other)
    outcomes_by_run = [
        outcomes(evaluation.task, evaluation.predictions, evaluation.records) for evaluation in evaluations
    ]
    samples = _samples(evaluations, outcomes_by_run)
    criterion = first.task.criterion
    runs = [
        _to_compared_run(name, evaluation, criterion, sample, run_outcomes)
        for name, evaluation, sample, run_outcomes in zip(names, evaluations, samples, outcomes_by_run)
    ]
    tests = [
        _test(runs[i], runs[j], criterion, (samples[i], samples[j]))
        for i, j in itertools.combinations(range(len(runs)), 2)
    ]
    # Each kind of test is a family of its own for Holm's correction.
    corrected = holm([test.score.p_value for test in tests])
    right = holm([test.right.p_value for test in tests if test.right]) or [math.nan] * len(tests)
    tests = [dataclasses.replace(test, p_values=both) for test, both in zip(tests, zip(corrected, right, strict=True))]
    return RunComparison(criterion=criterion, runs=runs, tests=tests, records=first.records)


def comparison_report(path: Path, comparison: RunComparison) -> Path:
    """Write the page of a comparison; return its path."""
    dots = [
        IntervalRow(
            name=run.name,
            value=run.metrics[comparison.criterion],
            interval=run.interval,
            note=f"{run.metrics[comparison.criterion]:.4f}",
        )
        for run in comparison.runs
    ]
    (head, *scores), (heading, *tests) = comparison.scores(), comparison.pairs()
    rows = comparison.differing
    examples = [
        (comparison.records[row], [Answer(outcome=run.outcomes[row], model=run.name) for run in comparison.runs])
        for row in rows[:SHOWN]
    ]
    differing = f"The runs answer {len(rows):,} of {len(comparison.records):,} rows differently"
    summary = f"{differing}; those farthest apart come first."
    sections = [
        Section(
            heading="Scores",
            parts=[interval_plot(dots, title=f"{comparison.criterion}, 95% intervals"), table(scores, head=head)],
        ),
        Section(heading="Tests", parts=[table(tests, head=heading), paragraph(comparison.method())]),
        cards("Rows on which they differ", examples, note=summary, total=len(rows)),
    ]
    title = f"{len(comparison.runs)} runs compared on {len(comparison.records):,} rows"
    return write_report(path, title, sections)


def _once(watch: Watch) -> Watch:
    """Return a function that passes on events, but each notice only once."""
    seen: set[Notice] = set()

    def first(event: object) -> None:
        if not isinstance(event, Notice):
            watch(event)
        elif event not in seen:
            seen.add(event)
            watch(event)

    return first


def _p_value(value: float) -> str:
    """Return a p-value for a table.

    >>> _p_value(0.25), _p_value(1e-7)
    ('0.2500', '<0.0001')
    """
    return "<0.0001" if value < 0.00005 else f"{value:.4f}"


def _refuse_others(name: str, first: Evaluation, other_name: str, other: Evaluation) -> None:
    """Raise UserError if two runs have different texts or labels, or one lacks the criterion of the first.

    The criteria may differ, as those of two classifiers of which one was trained with class weights.
    """
    if first.task.criterion not in other.metrics:
        raise UserError(
            f"{name} is scored by {first.task.criterion}, {other_name} by {other.task.criterion}. Compare runs of "
            "the same task.",
            code="invalid-value",
        )
    rows = itertools.zip_longest(first.records, other.records)
    for number, (record, other_record) in enumerate(rows, 1):
        contents = [(row.texts, row.label) for row in (record, other_record) if row is not None]
        if len(contents) < 2 or contents[0] != contents[1]:
            location = (record or other_record).place
            raise UserError(
                f"{name} and {other_name} read different rows: the first difference is row {number} ({location}). "
                "Give the columns (--text, --label), or compare runs of the same task.",
                code="invalid-value",
            )


def _to_compared_run(
    name: str, evaluation: Evaluation, criterion: str, sample: Floats, run_outcomes: Sequence[RecordOutcome]
) -> ComparedRun:
    """Return a run with the interval of its samples, or Wilson's if its rows are all right or all wrong."""
    run = ComparedRun(name=name, metrics=evaluation.metrics, interval=percentiles(sample), outcomes=run_outcomes)
    interval = uniform_interval(evaluation.task, criterion, evaluation.metrics[criterion], len(evaluation.records))
    return dataclasses.replace(run, interval=(interval.low, interval.high), method=interval.method) if interval else run


def _samples(evaluations: Sequence[Evaluation], outcomes_by_run: Sequence[Sequence[RecordOutcome]]) -> list[Floats]:
    """Return each run's criterion on the same bootstrap samples of rows, (R,) per run."""
    criterion = evaluations[0].task.criterion
    # Scores per row and run, (rows, runs).
    scores = np.array([[outcome.score for outcome in run_outcomes] for run_outcomes in outcomes_by_run]).T
    means = [mean_score(run_outcomes) for run_outcomes in outcomes_by_run]
    # If the criterion is a mean of scores per row, samples are means of resampled scores: one matrix product.
    alike = all(
        math.isclose(mean, evaluation.metrics[criterion], abs_tol=1e-9) for mean, evaluation in zip(means, evaluations)
    )
    if alike and not np.isnan(scores).any():  # then it need not be computed anew for each sample
        return list(bootstrap_means(scores).T)

    def figures(rows: NDArray[np.intp]) -> list[float]:
        drawn = rows.tolist()
        return [
            evaluation.task.metrics(
                [evaluation.predictions[row] for row in drawn], [evaluation.records[row] for row in drawn]
            )[criterion]
            for evaluation in evaluations
        ]

    return list(bootstrap(figures, len(evaluations[0].records)).T)


def _test(first: ComparedRun, second: ComparedRun, criterion: str, samples: tuple[Floats, Floats]) -> PairTest:
    judged = [
        (outcome.right, other.right)
        for outcome, other in zip(first.outcomes, second.outcomes)
        if outcome.right is not None and other.right is not None
    ]
    scores = first.metrics[criterion], second.metrics[criterion]
    return PairTest(
        first=first.name,
        second=second.name,
        score=score_difference(scores, *samples),
        right=mcnemar(*zip(*judged)) if judged else None,
    )
