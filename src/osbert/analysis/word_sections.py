"""Sections on word weights: texts with coloured words, and tables of the strongest words of each label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from statistics import median
from typing import TYPE_CHECKING

from osbert.analysis.word_totals import LEAST, WordTotal, WordTotals
from osbert.reports.page import Section, paragraph, table

if TYPE_CHECKING:
    from osbert.analysis.explanation import Explanation

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
