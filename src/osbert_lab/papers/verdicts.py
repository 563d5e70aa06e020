"""Describes scores of several seeds in sentences: which of two rows is higher, and which claims of a paper hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from osbert.evaluation.compare import CONFIDENCE, FEWEST, Summary, summarise
from osbert_lab.papers.tables import RecipeClaim

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

    def turned(self) -> RowComparison:
        """Return the same comparison with the higher row as `above`."""
        if self.summary.mean >= 0:
            return self
        differences = [-one for one in self.differences]
        return RowComparison(above=self.below, below=self.above, column=self.column, differences=differences)

    def __str__(self) -> str:
        """Describe the difference in one sentence, with its interval."""
        if not self.summary.sign:
            same = "do not differ significantly: the interval of the difference"
            return f"{self.column}: {self.above} and {self.below} {same}, {self.interval}, contains 0."
        one = self.turned()
        return (
            f"{one.column}: {one.above} is above {one.below}: the interval of the difference, {one.interval}, excludes "
            "0."
        )


def compared(scores: Scores, above: str, below: str) -> list[RowComparison]:
    """Compare two rows in every column that both have."""
    # Runs with the same seed are paired: the variance that a seed causes in both rows cancels in the difference.
    pairs = {name: zip(scores[above][name], scores[below][name]) for name in scores[above] if name in scores[below]}
    return [
        RowComparison(above=above, below=below, column=name, differences=[one - other for one, other in pair])
        for name, pair in pairs.items()
    ]


def all_compared(scores: Scores) -> list[RowComparison]:
    """Compare every pair of rows in every column that both have."""
    return [one for above, below in itertools.combinations(scores, 2) for one in compared(scores, above, below)]


def apart(found: Sequence[RowComparison]) -> list[RowComparison]:
    """Return the comparisons whose interval excludes 0, the higher row as `above`, sorted by column, largest first."""
    # The sign is 0 if the interval contains 0.
    turned = [one.turned() for one in found if one.summary.sign]
    return sorted(turned, key=lambda one: (one.column, -one.summary.mean))


def decided(found: Sequence[RowComparison]) -> list[RowComparison]:
    """Return the comparisons with enough seeds for an interval. While a table is worked on, some columns lack them."""
    return [one for one in found if one.summary.count >= FEWEST]


def counted(found: Sequence[RowComparison]) -> str:
    """Describe how many intervals exclude 0, and how many would by chance; TOO_FEW if there are too few seeds."""
    found = decided(found)
    if not found:
        return TOO_FEW
    # Expected number of false positives without a correction for multiple comparisons.
    chance = (1 - CONFIDENCE) * len(found)
    return (
        f"Of {len(found)} differences the intervals of {len(apart(found))} exclude 0. If no two rows differed, chance "
        f"alone would make about {chance:.1f} do so."
    )


def claim_sentence(claim: RecipeClaim, scores: Scores) -> str:
    """Describe whether a claim holds in each column; "" if one of its rows was not run."""
    found = compared(scores, claim.above, claim.below) if {claim.above, claim.below} <= {*scores} else []
    if not found:
        return ""
    few = [f"{one.column} ({one.summary.count})" for one in found if one.summary.count < FEWEST]
    if len(few) == len(found):
        return f"{claim.says}: not decided, with {found[0].summary.count} of the {FEWEST} seeds that an interval needs."
    found = decided(found)
    words = {1: "it shows on", -1: "the opposite shows on", 0: "no significant difference on"}
    said = [
        f"{words[sign]} {', '.join(f'{one.column} {one.interval}' for one in found if one.summary.sign == sign)}"
        for sign in words
        if any(one.summary.sign == sign for one in found)
    ]
    if few:
        said.append(f"too few seeds on {', '.join(few)}")
    return f"{claim.says}. {claim.above} less {claim.below}: {'; '.join(said)}."


def spelt(values: Sequence[float], *, scale: float = 100, digits: int = 1) -> str:
    """Format the mean and its interval as "71.2 (70.1 to 72.3)"; the mean alone for fewer than three values.

    >>> spelt([0.70, 0.71, 0.72]), spelt([0.7]), spelt([])
    ('71.0 (68.5 to 73.5)', '70.0', '-')
    """
    if not values:
        return "-"
    found = summarise([scale * value for value in values])
    low, high = found.interval
    return f"{found.mean:.{digits}f}" + ("" if math.isnan(low) else f" ({low:.{digits}f} to {high:.{digits}f})")
