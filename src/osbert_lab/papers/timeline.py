"""Timelines as SVG: a line for each model in the order of its year, with its name and its scores with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from osbert.reports.plot import BOTTOM, LETTER, TOP, WIDTH, fit_text, picture, short, ticks

ROW = 24
"""Height of a line."""
LEFT, RIGHT = 44, 10
"""Left end of the scale, behind the years, and its distance from the right end of the picture."""
GAP = 8
"""Distance of a name from its points."""


@dataclass(frozen=True, kw_only=True)
class TimelineScore:
    """A score and its interval; without an interval both ends are NaN."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest number that is drawn."""
        return (self.value, self.value) if math.isnan(self.low) else (self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class TimelineRow:
    """A model: its name, the year of its paper, and its scores by series."""

    name: str
    year: int
    scores: Mapping[str, TimelineScore]


def timeline(rows: Sequence[TimelineRow], series: Sequence[str], *, title: str) -> str:
    """Return a <figure>: time runs downwards, scores to the right; each model's name stands at its points.

    `series`: the names of the scores, at most six; each has a colour. Models without any score keep their line. Values
    must be finite.
    """
    ends = [end for row in rows for score in row.scores.values() for end in score.ends]
    if not ends:
        return picture([], title=title)
    low, high = min(ends), max(ends)
    margin = (high - low) * 0.05 or abs(high) * 0.02 or 0.01
    scale = _Scale(low=low - margin, high=high + margin)
    bottom = TOP + ROW * len(rows)
    parts = []
    for value in ticks(scale.low, scale.high):
        x = scale.across(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick middle" x="{x:.1f}" y="{bottom + 18}">{short(value)}</text>')
    before = 0
    for index, row in enumerate(rows):
        top = TOP + ROW * index
        if row.year != before:
            parts.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{top}" y2="{top}"/>')
            parts.append(f'<text class="tick" x="4" y="{top + ROW / 2 + 4:g}">{row.year}</text>')
        before = row.year
        parts += _line(row, series, scale, top + ROW / 2)
    keys = [(name, color) for color, name in enumerate(series)]
    return picture(parts, title=title, keys=keys if len(keys) > 1 else (), height=bottom + BOTTOM)


@dataclass(frozen=True, kw_only=True)
class _Scale:
    low: float
    high: float

    def across(self, value: float) -> float:
        return LEFT + (value - self.low) / (self.high - self.low) * (WIDTH - RIGHT - LEFT)


def _line(row: TimelineRow, series: Sequence[str], scale: _Scale, y: float) -> list[str]:
    parts: list[str] = []
    taken: list[tuple[float, float]] = []
    for color, name in enumerate(series):
        if name not in row.scores:
            continue
        score = row.scores[name]
        first, last = (scale.across(end) for end in score.ends)
        taken.append((first - GAP, last + GAP))
        if last > first:
            parts.append(f'<line class="whisker c{color}" x1="{first:.1f}" x2="{last:.1f}" y1="{y:g}" y2="{y:g}"/>')
        note = f"<title>{escape(row.name)}, {escape(name)}: {score.value:.1f}</title>"
        parts.append(
            f'<circle class="dot c{color}" cx="{scale.across(score.value):.1f}" cy="{y:g}" r="4.5">{note}</circle>'
        )
    if not taken:
        return [f'<text class="tick" x="{LEFT}" y="{y + 4:g}">{escape(row.name)}: not measured</text>']
    return [*parts, _name(row.name, taken, y)]


def _name(name: str, taken: Sequence[tuple[float, float]], y: float) -> str:
    """Return the name in the first space with room for it, else in the widest: right, left, or between the points."""
    spans = sorted(taken)
    first, last = spans[0][0], max(end for _, end in spans)
    spaces = [(last, WIDTH), (LEFT, first)]
    edge = spans[0][1]
    for start, end in spans[1:]:
        spaces.append((edge, start))
        edge = max(edge, end)
    wanted = LETTER * len(name)
    left, right = next(
        (space for space in spaces if space[1] - space[0] >= wanted), max(spaces, key=lambda space: space[1] - space[0])
    )
    label = escape(fit_text(name, right - left))
    if right == first:  # to the left of its points: it ends there
        return f'<text class="end" x="{right:.1f}" y="{y + 4:g}">{label}</text>'
    return f'<text x="{left:.1f}" y="{y + 4:g}">{label}</text>'
