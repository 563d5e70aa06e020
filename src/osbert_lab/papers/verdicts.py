"""Describes scores of several seeds in sentences: which of two rows is higher, and which claims of a paper hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from osbert.evaluation.bootstrap import CONFIDENCE
from osbert_lab.papers.tables import RecipeClaim
from osbert_lab.study.summaries import FEWEST, Summary, summarise

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""Scores by row and column, one per seed."""
TOO_FEW = f"Fewer than {FEWEST} seeds give no intervals, so rows cannot be ranked (--seeds 3)."


@dataclass(frozen=True, kw_only=True)
class RowComparison:
    """Two rows in one column. `differences`: score of `above` minus score of `below`, for each seed that both have."""

    above: str
    below: str
    column: str
    differences: Sequence[float]

    @property
    def summary(self) -> Summary:
        """Summary statistics of the differences: count, mean and confidence interval."""
        return summarise(self.differences)

    @property
    def interval(self) -> str:
        """The mean difference and its confidence interval, in percentage points, such as "+1.2 (+0.3 to +2.1)"."""
        low, high = (100 * end for end in self.summary.interval)
        return f"{100 * self.summary.mean:+.1f} ({low:+.1f} to {high:+.1f})"

    def put_higher_above(self) -> RowComparison:
        """Return the same comparison with the higher row as `above`."""
        if self.summary.mean >= 0:
            return self
        differences = [-difference for difference in self.differences]
        return RowComparison(above=self.below, below=self.above, column=self.column, differences=differences)

    def __str__(self) -> str:
        """Describe the difference in one sentence, with its interval."""
        if not self.summary.sign:
            same = "do not differ significantly: the interval of the difference"
            return f"{self.column}: {self.above} and {self.below} {same}, {self.interval}, contains 0."
        comparison = self.put_higher_above()
        return (
            f"{comparison.column}: {comparison.above} is above {comparison.below}: the interval of "
            f"the difference, {comparison.interval}, excludes "
            "0."
        )


def compare_rows(scores: Scores, above: str, below: str) -> list[RowComparison]:
    """Compare two rows in every column that both have."""
    # Runs with the same seed are paired: the variance that a seed causes in both rows cancels in the difference.
    pairs = {name: zip(scores[above][name], scores[below][name]) for name in scores[above] if name in scores[below]}
    return [
        RowComparison(above=above, below=below, column=name, differences=[score - other for score, other in pair])
        for name, pair in pairs.items()
    ]


def compare_all_rows(scores: Scores) -> list[RowComparison]:
    """Compare every pair of rows in every column that both have."""
    return [
        comparison
        for above, below in itertools.combinations(scores, 2)
        for comparison in compare_rows(scores, above, below)
    ]


def select_significant(comparisons: Sequence[RowComparison]) -> list[RowComparison]:
    """Return the comparisons whose interval excludes 0, the higher row as `above`, sorted by column, largest first."""
    # The sign is 0 if the interval contains 0.
    turned = [comparison.put_higher_above() for comparison in comparisons if comparison.summary.sign]
    return sorted(turned, key=lambda comparison: (comparison.column, -comparison.summary.mean))


def select_with_intervals(comparisons: Sequence[RowComparison]) -> list[RowComparison]:
    """Return the comparisons with enough seeds for an interval. While a table is worked on, some columns lack them."""
    return [comparison for comparison in comparisons if comparison.summary.count >= FEWEST]


def describe_intervals(comparisons: Sequence[RowComparison]) -> str:
    """Describe how many intervals exclude 0, and how many would by chance; TOO_FEW if there are too few seeds."""
    comparisons = select_with_intervals(comparisons)
    if not comparisons:
        return TOO_FEW
    # Expected number of false positives without a correction for multiple comparisons.
    chance = (1 - CONFIDENCE) * len(comparisons)
    return (
        f"Of {len(comparisons)} differences the intervals of {len(select_significant(comparisons))} "
        "exclude 0. If no two rows differed, chance "
        f"alone would make about {chance:.1f} do so."
    )


def claim_sentence(claim: RecipeClaim, scores: Scores) -> str:
    """Describe whether a claim holds in each column; "" if one of its rows was not run."""
    comparisons = compare_rows(scores, claim.above, claim.below) if {claim.above, claim.below} <= {*scores} else []
    if not comparisons:
        return ""
    few = [
        f"{comparison.column} ({comparison.summary.count})"
        for comparison in comparisons
        if comparison.summary.count < FEWEST
    ]
    if len(few) == len(comparisons):
        return (
            f"{claim.says}: not decided, with {comparisons[0].summary.count} of the {FEWEST} seeds that "
            "an interval needs."
        )
    comparisons = select_with_intervals(comparisons)
    words = {1: "it shows on", -1: "the opposite shows on", 0: "no significant difference on"}
    columns: dict[int, list[str]] = {}
    for comparison in comparisons:
        columns.setdefault(comparison.summary.sign, []).append(f"{comparison.column} {comparison.interval}")
    clauses = [f"{words[sign]} {', '.join(columns[sign])}" for sign in words if sign in columns]
    if few:
        clauses.append(f"too few seeds on {', '.join(few)}")
    return f"{claim.says}. {claim.above} less {claim.below}: {'; '.join(clauses)}."


def format_mean(values: Sequence[float], *, scale: float = 100, digits: int = 1) -> str:
    """Format the mean and its interval as "71.2 (70.1 to 72.3)"; the mean alone for fewer than three values.

    >>> format_mean([0.70, 0.71, 0.72]), format_mean([0.7]), format_mean([])
    ('71.0 (68.5 to 73.5)', '70.0', '-')
    """
    if not values:
        return "-"
    summary = summarise([scale * value for value in values])
    low, high = summary.interval
    return f"{summary.mean:.{digits}f}" + ("" if math.isnan(low) else f" ({low:.{digits}f} to {high:.{digits}f})")
