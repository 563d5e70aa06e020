"""The confusion matrix as SVG: rows are true labels, columns predicted ones; frequent pairs are darker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from osbert.reports.plot import LETTER, RIGHT, WIDTH, fit_text, picture, short

MOST_LABELS = 20
"""Most labels in the picture: the most frequent ones; the others are combined."""
OTHERS = "(others)"
NONE = "(none)"
NARROWEST, WIDEST, CELL = 36, 110, 44
"""Smallest width for names (enough for "true"), largest width, and largest cell, in pixels."""
NUMBERED = 22
"""Smallest cell that shows its number, in pixels."""
DARKEST = 0.55
"""Opacity of the darkest cell; text on it stays legible."""


def matrix_plot(pairs: Sequence[tuple[str, str]], *, title: str) -> str:
    """Return a <figure> of the number of (true, predicted) pairs of labels; "" is no label."""
    counts, labels = _counts(pairs)
    if not labels:
        return picture([], title=title, height=80)
    room = min(WIDEST, max(NARROWEST, max(map(len, labels)) * LETTER)) + 12
    cell = min(CELL, (WIDTH - room - RIGHT) / len(labels))
    top = room + 16
    parts = [
        f'<text class="tick" x="{room:.1f}" y="12">predicted →</text>',
        f'<text class="tick" x="4" y="{top - 6:.1f}">true ↓</text>',
    ]
    for index, label in enumerate(labels):
        x, y = room + cell * (index + 0.5) + 4, top + cell * (index + 0.5) + 4
        label_html = f"{escape(fit_text(label, room - 12))}<title>{escape(label)}</title>"
        parts.append(f'<text class="tick" transform="translate({x:.1f} {top - 6:.1f}) rotate(-90)">{label_html}</text>')
        parts.append(f'<text class="tick end" x="{room - 8:.1f}" y="{y:.1f}">{label_html}</text>')
    for row, true in enumerate(labels):
        total = sum(counts[true, guess] for guess in labels)
        for column, guess in enumerate(labels):
            count = counts[true, guess]
            rate = count / total if total else 0.0
            x, y = room + cell * column, top + cell * row
            tooltip = f"{true} predicted as {guess}: {count:,} of {total:,} ({rate:.1%})"
            parts.append(
                f'<rect class="cell c{int(row != column)}" x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{cell - 1:.1f}" '
                f'height="{cell - 1:.1f}" fill-opacity="{DARKEST * rate:.3f}"><title>{escape(tooltip)}</title></rect>'
            )
            if count and cell >= NUMBERED:
                where = f'x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}"'
                parts.append(f'<text class="number middle" {where}>{short(count)}</text>')
    return picture(parts, title=title, height=top + cell * len(labels) + 6)


def _counts(pairs: Sequence[tuple[str, str]]) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Return the count of each pair of labels, and the labels in order, the combined ones and "none" last."""
    frequent = Counter(label for pair in pairs for label in pair if label)
    frequent_labels = sorted(label for label, _ in frequent.most_common(MOST_LABELS))
    names = {**{label: label for label in frequent_labels}, "": NONE}
    counts = Counter((names.get(true, OTHERS), names.get(guess, OTHERS)) for true, guess in pairs)
    present_labels = {label for pair in counts for label in pair}
    return counts, [*frequent_labels, *(name for name in (OTHERS, NONE) if name in present_labels)]
