"""Charts as SVG: intervals and bars of named rows, and the confusion matrix."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from osbert.reports.plot import BOTTOM, LETTER, RIGHT, TOP, WIDTH, fit_text, picture, short, ticks

WIDEST_NAMES = 130
"""Most width for names of bars and intervals, in pixels."""
ROW, THICK = 24, 9
"""Height of a row with an interval, and of a bar, in pixels."""
MOST_LABELS = 20
"""Most labels in the picture: the most frequent ones; the others are combined."""
OTHERS = "(others)"
NONE = "(none)"
NARROWEST_LABELS, WIDEST_LABELS, CELL = 36, 110, 44
"""Of the matrix: smallest width for names (enough for "true"), largest width, and largest cell, in pixels."""
NUMBERED = 22
"""Smallest cell that shows its number, in pixels."""
DARKEST = 0.55
"""Opacity of the darkest cell; text on it stays legible."""


@dataclass(frozen=True, kw_only=True)
class IntervalRow:
    """A value with its interval (NaN if unknown), and a note behind it, such as the number of rows."""

    name: str
    value: float
    interval: tuple[float, float] = (math.nan, math.nan)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class BarRow:
    """The values of a row, one for each series; None if missing."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class PlotScale:
    """The horizontal scale between the names and the notes."""

    left: float
    right: float
    ends: tuple[float, float]

    @classmethod
    def behind(cls, names: Sequence[str], right: float, ends: tuple[float, float]) -> PlotScale:
        """Return the scale behind these names of rows, up to the pixel `right`."""
        return cls(left=min(WIDEST_NAMES, max(map(len, names)) * LETTER) + 16, right=right, ends=ends)

    def across(self, value: float) -> float:
        """Return the x of a value, in pixels."""
        low, high = self.ends
        return self.left + (min(max(value, low), high) - low) / (high - low) * (self.right - self.left)

    def name(self, text: str, y: float) -> str:
        """Return the name of a row, before the scale."""
        label = escape(fit_text(text, self.left - 10))
        title = f"<title>{escape(text)}</title>"
        return f'<text class="tick end" x="{self.left - 8:.1f}" y="{y + 4:.1f}">{label}{title}</text>'

    def grid(self, height: float, *, percent: bool = False, count: int = 4) -> list[str]:
        """Return about `count` vertical lines and their numbers, for a picture of this height."""
        parts = []
        for value in ticks(*self.ends, count=count):
            x, label = self.across(value), f"{value:.0%}" if percent else short(value)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM:g}"/>')
            parts.append(f'<text class="tick middle" x="{x:.1f}" y="{height - BOTTOM + 18:g}">{label}</text>')
        return parts


def interval_plot(
    rows: Sequence[IntervalRow], *, title: str, mark: float = math.nan, ends: tuple[float, float] | None = None
) -> str:
    """Return a <figure> with a dot and a whisker for each row, and a vertical line at `mark`, the overall value.

    `ends`: the limits of the scale, by default those of the values.
    """
    finite_rows = [row for row in rows if math.isfinite(row.value)]
    if not finite_rows:
        return picture([], title=title, height=TOP + BOTTOM + ROW)
    values = [value for row in finite_rows for value in (row.value, *row.interval, mark) if math.isfinite(value)]
    notes = max(len(row.note) for row in finite_rows) * LETTER
    right = WIDTH - RIGHT - (notes + 10 if notes else 0)
    field = PlotScale.behind([row.name for row in finite_rows], right, ends or scale_ends(values))
    height = TOP + BOTTOM + ROW * len(finite_rows)
    parts = field.grid(height)
    if math.isfinite(mark):
        x = field.across(mark)
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM:g}"/>')
    for index, row in enumerate(finite_rows):
        y = TOP + ROW * (index + 0.5)
        low, high = row.interval
        parts.append(field.name(row.name, y))
        tooltip = f"{row.name}: {row.value:.4f}"
        if math.isfinite(low) and math.isfinite(high):
            across = f'x1="{field.across(low):.1f}" x2="{field.across(high):.1f}"'
            parts.append(f'<line class="whisker c0" {across} y1="{y:.1f}" y2="{y:.1f}"/>')
            tooltip += f", 95% interval {low:.4f} to {high:.4f}"
        parts.append(
            f'<circle class="dot c0" cx="{field.across(row.value):.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(tooltip)}</title></circle>"
        )
        parts.append(f'<text class="tick" x="{field.right + 10:.1f}" y="{y + 4:.1f}">{escape(row.note)}</text>')
    return picture(parts, title=title, height=height)


def bar_plot(rows: Sequence[BarRow], series: Sequence[str], *, title: str, percent: bool = True) -> str:
    """Return a <figure> with a bar for each value of each row, in the colour of its series."""
    most = max((value for row in rows for value in row.values if value is not None), default=0.0)
    if not most > 0:
        return picture([], title=title, height=TOP + BOTTOM + ROW)
    field = PlotScale.behind([row.name for row in rows], WIDTH - RIGHT - 4, (0.0, most))
    room = THICK * len(series) + 7
    height = TOP + BOTTOM + room * len(rows)
    parts = field.grid(height, percent=percent)
    for index, row in enumerate(rows):
        top = TOP + room * index + 3.5
        parts.append(field.name(row.name, top + THICK * len(series) / 2))
        for number, (name, value) in enumerate(zip(series, row.values)):
            if value is None:
                continue
            value_text = f"{value:.1%}" if percent else short(value)
            tooltip = f"{row.name}, {name}: {value_text}" if name else f"{row.name}: {value_text}"
            parts.append(
                f'<rect class="bar c{number}" x="{field.left:.1f}" y="{top + THICK * number:.1f}" height="{THICK - 1}" '
                f'width="{max(field.across(value) - field.left, 0.5):.1f}"><title>{escape(tooltip)}</title></rect>'
            )
    keys = [(name, number) for number, name in enumerate(series) if name]
    return picture(parts, title=title, keys=keys if len(keys) > 1 else [], height=height)


def scale_ends(values: Sequence[float], *, relative: float = 0.05, absolute: float = 0.05) -> tuple[float, float]:
    """Return the limits of a scale; around equal values the margin is `relative` to them, around 0 `absolute`."""
    low, high = min(values), max(values)
    margin = (high - low) * 0.06 or abs(high) * relative or absolute
    return low - margin, high + margin


def matrix_plot(pairs: Sequence[tuple[str, str]], *, title: str) -> str:
    """Return a <figure> of the number of (true, predicted) pairs of labels; "" is no label."""
    frequent = Counter([label for pair in pairs for label in pair if label])
    labels = sorted([label for label, _ in frequent.most_common(MOST_LABELS)])
    names = {**dict(zip(labels, labels)), "": NONE}
    counts = Counter([(names.get(true, OTHERS), names.get(guess, OTHERS)) for true, guess in pairs])
    present_labels = [label for pair in counts for label in pair]
    labels += [name for name in (OTHERS, NONE) if name in present_labels]  # the combined ones and "none" come last
    if not labels:
        return picture([], title=title, height=80)
    room = min(WIDEST_LABELS, max(NARROWEST_LABELS, max(map(len, labels)) * LETTER)) + 12
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
