"""What scores of several seeds say in plain sentences: which of two is above the other, and which claims show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from osbert.evaluation.compare import CONFIDENCE, FEWEST, Summary, summarise
from osbert.runs.reproduce.tables import RecipeClaim

Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""Scores by row and column, one a seed."""
TOO_FEW = f"Fewer than {FEWEST} seeds give no intervals, so nothing is said of what is above what (--seeds 3)."


@dataclass(frozen=True, kw_only=True)
class RowComparison:
    """Two rows in one column: the `differences`, `above` less `below`, of runs with the same seed."""

    above: str
    below: str
    column: str
    differences: Sequence[float]

    @property
    def summary(self) -> Summary:
        """Return the differences as a few numbers."""
        return summarise(self.differences)

    @property
    def interval(self) -> str:
        """Return the mean difference and its interval, in points of 100."""
        low, high = (100 * end for end in self.summary.interval)
        return f"{100 * self.summary.mean:+.1f} ({low:+.1f} to {high:+.1f})"

    def turned(self) -> RowComparison:
        """Return it with the higher row first."""
        if self.summary.mean >= 0:
            return self
        differences = [-one for one in self.differences]
        return RowComparison(above=self.below, below=self.above, column=self.column, differences=differences)

    def __str__(self) -> str:
        """Return a sentence."""
        if not self.summary.sign:
            said = "are not told apart: the interval of the difference"
            return f"{self.column}: {self.above} and {self.below} {said}, {self.interval}, holds 0."
        one = self.turned()
        return (
            f"{one.column}: {one.above} is above {one.below}: the interval of the difference, {one.interval}, excludes "
            "0."
        )


def compared(scores: Scores, above: str, below: str) -> list[RowComparison]:
    """Return two rows beside each other in every column that both have."""
    pairs = {name: zip(scores[above][name], scores[below][name]) for name in scores[above] if name in scores[below]}
    return [
        RowComparison(above=above, below=below, column=name, differences=[one - other for one, other in pair])
        for name, pair in pairs.items()
    ]


def all_compared(scores: Scores) -> list[RowComparison]:
    """Return every two rows in every column that both have."""
    return [one for above, below in itertools.combinations(scores, 2) for one in compared(scores, above, below)]


def apart(found: Sequence[RowComparison]) -> list[RowComparison]:
    """Return those whose interval excludes 0, the higher row first, column by column and the largest before others."""
    turned = [one.turned() for one in found if one.summary.sign]
    return sorted(turned, key=lambda one: (one.column, -one.summary.mean))


def counted(found: Sequence[RowComparison]) -> str:
    """Return how many differences exclude 0, and how many would by chance; or why that is unknown."""
    if not found or found[0].summary.count < FEWEST:
        return TOO_FEW
    chance = (1 - CONFIDENCE) * len(found)
    return (
        f"Of {len(found)} differences the intervals of {len(apart(found))} exclude 0. If no two rows differed, chance "
        f"alone would make about {chance:.1f} do so."
    )


def claim_sentence(claim: RecipeClaim, scores: Scores) -> str:
    """Return whether a claim shows, column by column; "" where one of its rows is not there."""
    found = compared(scores, claim.above, claim.below) if {claim.above, claim.below} <= {*scores} else []
    if not found:
        return ""
    if found[0].summary.count < FEWEST:
        return (
            f"{claim.says}: not to be said from {found[0].summary.count} of the {FEWEST} seeds that it takes at least."
        )
    words = {1: "it shows on", -1: "the opposite shows on", 0: "the two are not told apart on"}
    said = [
        f"{words[sign]} {', '.join(f'{one.column} {one.interval}' for one in found if one.summary.sign == sign)}"
        for sign in words
        if any(one.summary.sign == sign for one in found)
    ]
    return f"{claim.says}. {claim.above} less {claim.below}: {'; '.join(said)}."


def spelt(values: Sequence[float], *, scale: float = 100, digits: int = 1) -> str:
    """Return the mean and its interval: "71.2 (70.1 to 72.3)"; of fewer than three values the mean alone.

    >>> spelt([0.70, 0.71, 0.72]), spelt([0.7]), spelt([])
    ('71.0 (68.5 to 73.5)', '70.0', '-')
    """
    if not values:
        return "-"
    found = summarise([scale * value for value in values])
    low, high = found.interval
    return f"{found.mean:.{digits}f}" + ("" if math.isnan(low) else f" ({low:.{digits}f} to {high:.{digits}f})")
