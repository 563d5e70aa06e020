"""The strongest words of each label over many explanations, and the sections of a report that show word weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import median
from typing import TYPE_CHECKING

from osbert.reports.page import Section, paragraph, table

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


SHADES = 4
"""Number of shades of each of the two colours."""
STYLE = ".weighed { white-space: pre-wrap; unicode-bidi: isolate; line-height: 1.8; }\n" + "".join(
    f".weighed .{name}{shade} {{ background: color-mix(in srgb, var({colour}) {15 * shade}%, transparent); {extra} }}\n"
    for name, colour, extra in (("for", "--c0", ""), ("against", "--c1", "text-decoration: underline dotted;"))
    for shade in range(1, SHADES + 1)
)
SAID = (
    "A word's weight is what it adds to the score of the answer, against the same text without any word: the logit of "
    "the label above the mean of the others, or the predicted number."
)
COLOURS = (
    "In the examples blue words speak for the answer, those with dots under them against it; the stronger the colour, "
    "the larger the weight beside the others of its text."
)
SHOWN = "The examples are those of the highest scores: they show the model where it is surest, not as it usually is."
CAUTION = (
    "Weights say what this model has used, not what is true or what would change its mind best; words that only count "
    "together share their weight."
)


def colour_words(explanation: Explanation, text: str, number: int = 0) -> str:
    """Return text number `number` of an explanation as HTML; words are coloured by weight, with it as a tooltip."""
    most = max((abs(word.weight) for word in explanation.words), default=0.0) or 1.0
    parts, end = [], 0
    for word in (word for word in explanation.words if word.text == number):
        # Shades are relative to the strongest word of the explanation; shade 0 is not coloured.
        shade = round(SHADES * abs(word.weight) / most)
        name = f"{'for' if word.weight > 0 else 'against'}{shade}"
        word_html = escape(text[word.start : word.end])
        marked = f'<span class="{name}" title="{word.weight:+.3f}">{word_html}</span>' if shade else word_html
        parts += [escape(text[end : word.start]), marked]
        end = word.end
    return f'<p class="weighed">{"".join(parts)}{escape(text[end:])}</p>'


def word_sections(totals: WordTotals, examples: Sequence[tuple[Explanation, Sequence[str], int]]) -> Iterator[Section]:
    """Yield the section on trust, and for each label its strongest words and examples (explanation, texts, line)."""
    yield Section(heading="Trust", parts=[paragraph(SAID), table(trust(totals)), paragraph(CAUTION)])
    head = ("word", "explanations", "mean weight", "95% interval", "line", "example")
    for label, count in totals.counts.items():
        parts = [paragraph(f"{count:,} explanations of {label}; words in {LEAST} of them or more.")]
        for against, heading in ((False, "for it"), (True, "against it")):
            if totals_of_side := totals.strongest(label, against=against):
                parts += [paragraph(f"Words {heading}:"), table(map(_row, totals_of_side), head=head)]
        parts.append(paragraph(COLOURS))
        for explanation, texts, line in examples:
            if explanation.label == label:
                parts.append(paragraph(f"line {line}, score {explanation.score:+.3f} {explanation.text}"))
                parts += [colour_words(explanation, text, number) for number, text in enumerate(texts)]
        parts.append(f'<p class="soft">{SHOWN}</p>')
        yield Section(heading=f"Words of {label}", parts=parts, style=STYLE)


def trust(totals: WordTotals) -> list[tuple[str, str]]:
    """Return rows of a table: number of explanations, completeness error, agreement, cut texts."""
    rows = [("explanations", f"{sum(totals.counts.values()):,}")]
    if totals.errors:
        # 2% is the default tolerance, above which an explanation takes more points.
        small = sum(error <= 0.02 for error in totals.errors) / len(totals.errors)
        rows.append(("completeness error", f"median {median(totals.errors):.2%}; {small:.0%} of them at most 2%"))
    if totals.agreements:
        agreement = f"median {median(totals.agreements):.2f} over {len(totals.agreements):,} explanations"
        rows.append(("rank correlation with occlusion", agreement))
    if totals.cut:
        rows.append(("of texts that were not read whole", f"{totals.cut:,}: words that did not fit have no weight"))
    return rows


def _row(total: WordTotal) -> tuple[str, ...]:
    bounds = f"{total.low:+.3f} to {total.high:+.3f}"
    return (total.word, f"{total.count:,}", f"{total.mean:+.3f}", bounds, f"{total.line:,}", total.example)
