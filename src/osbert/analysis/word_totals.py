"""The strongest words of each label: mean weights over many explanations, with intervals and an example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from osbert.analysis.explanation import Explanation

LEAST = 3
"""Fewest explanations with a word for it to be listed."""
AROUND = 40
"""Characters of context in the example, on each side of the word."""
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120)
"""Student's t for 95% intervals with 1, 2, ... degrees of freedom; beyond the last one 1.96 is used."""


@dataclass(frozen=True, kw_only=True)
class WordTotal:
    """A word in the explanations of one label.

    `count`: explanations that contain it. `mean`: mean of its weights, summed within each explanation. `low`, `high`:
    the 95% interval of that mean. `line`, `example`: the line of its largest weight, and the text around it.
    """

    word: str
    count: int
    mean: float
    low: float
    high: float
    line: int
    example: str


@dataclass
class _Sums:
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    largest: float = -1.0
    line: int = 0
    example: str = ""

    def over(self, word: str) -> WordTotal:
        mean = self.total / self.count
        # The unbiased variance from running sums.
        spread = max(self.squares / self.count - mean * mean, 0.0) * self.count / max(self.count - 1, 1)
        t = T95[self.count - 2] if self.count - 2 < len(T95) else 1.96
        half = t * math.sqrt(spread / self.count)
        return WordTotal(
            word=word,
            count=self.count,
            mean=mean,
            low=mean - half,
            high=mean + half,
            line=self.line,
            example=self.example,
        )


@dataclass
class WordTotals:
    """Totals of word weights over many explanations. Upper and lower case count as one word.

    Memory grows with the number of different words, not of texts. `counts`: the number of explanations by label;
    `cut`: of those whose text the model did not read whole.
    """

    counts: dict[str, int] = field(default_factory=dict)
    cut: int = 0
    errors: list[float] = field(default_factory=list)
    agreements: list[float] = field(default_factory=list)
    _sums: dict[str, dict[str, _Sums]] = field(default_factory=dict)

    def add(self, explanation: Explanation, texts: Sequence[str], line: int) -> None:
        """Add the words of an explanation of the texts in a line of a file."""
        label = explanation.label
        self.counts[label] = self.counts.get(label, 0) + 1
        self.cut += explanation.truncated > 0
        self.errors += [] if explanation.error is None else [explanation.error]
        self.agreements += [] if explanation.agreement is None else [explanation.agreement]
        # A word that occurs several times in one explanation counts once, with the sum of its weights.
        weights: dict[str, float] = {}
        for word in explanation.words:
            weights[word.word.casefold()] = weights.get(word.word.casefold(), 0.0) + word.weight
        occurrences = {word.word.casefold(): word for word in explanation.words}
        sums = self._sums.setdefault(label, {})
        for called, weight in weights.items():
            word_sums = sums.setdefault(called, _Sums())
            word_sums.count += 1
            word_sums.total += weight
            word_sums.squares += weight * weight
            if abs(weight) > word_sums.largest:
                word = occurrences[called]
                around = texts[word.text][max(word.start - AROUND, 0) : word.end + AROUND]
                word_sums.largest, word_sums.line, word_sums.example = abs(weight), line, around

    def strongest(self, label: str, count: int = 15, *, against: bool = False) -> list[WordTotal]:
        """Return the strongest words for a label, or against it, ordered by the end of their interval nearer to 0.

        Words whose interval contains 0 are left out.
        """
        totals = [
            word_sums.over(word) for word, word_sums in self._sums.get(label, {}).items() if word_sums.count >= LEAST
        ]
        if against:
            return sorted((total for total in totals if total.high < 0), key=lambda total: total.high)[:count]
        return sorted((total for total in totals if total.low > 0), key=lambda total: -total.low)[:count]
