"""Strip plots as plain SVG text: a row a group, a dot a run, a line at the median; so that spread is seen, not told."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from osbert.analysis.plot import BOTTOM, RIGHT, TOP, WIDTH, picture, short, ticks

ROW = 26
"""Height of a row."""
LETTER = 6.4
"""About the width of a letter of a row's name."""
WIDEST = 300
"""The most room for names."""
NEAR = 5.0
"""Dots nearer to each other than this are put at different heights."""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One run: its value, what it says when pointed at, and how it looks; a hollow one is left out of the median."""

    value: float
    label: str
    look: Literal["dot", "best", "hollow"] = "dot"


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A row: its name and its dots."""

    name: str
    dots: Sequence[Dot]


def strip_plot(strips: Sequence[Strip], *, title: str) -> str:
    """Return an <svg> of the strips, one below the other on one scale; values that are not finite are left out."""
    strips = [Strip(name=one.name, dots=[dot for dot in one.dots if math.isfinite(dot.value)]) for one in strips]
    values = [dot.value for strip in strips for dot in strip.dots]
    height = TOP + BOTTOM + ROW * max(1, len(strips))
    if not values:
        return picture([], title=title, left=4, height=height)
    parts = []
    scale = _scale(strips, values)
    for value in ticks(*scale.ends):
        x = scale.across(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text class="tick middle" x="{x:.1f}" y="{height - BOTTOM + 18}">{short(value)}</text>')
    for place, strip in enumerate(strips):
        parts += _row(strip, scale, TOP + ROW * (place + 0.5))
    return picture(parts, title=title, left=4, height=height)


@dataclass(frozen=True)
class _Scale:
    """Where values lie across the picture, right of the names."""

    ends: tuple[float, float]
    left: float

    def across(self, value: float) -> float:
        low, high = self.ends
        return self.left + (value - low) / (high - low) * (WIDTH - RIGHT - self.left)


def _scale(strips: Sequence[Strip], values: Sequence[float]) -> _Scale:
    low, high = min(values), max(values)
    margin = (high - low) * 0.06 or abs(high) * 0.02 or 0.01
    room = min(WIDEST, max(len(strip.name) for strip in strips) * LETTER)
    return _Scale((low - margin, high + margin), 16 + room)


def _row(strip: Strip, scale: _Scale, y: float) -> list[str]:
    most = int(WIDEST / LETTER)
    name = strip.name if len(strip.name) <= most else f"{strip.name[: most - 1]}…"
    parts = [f'<text class="tick end" x="{scale.left - 12:.1f}" y="{y + 4:.1f}">{escape(name)}</text>']
    counted = [dot.value for dot in strip.dots if dot.look != "hollow"]
    if counted:
        x = scale.across(statistics.median(counted))
        parts.append(f'<line class="median" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 9:.1f}" y2="{y + 9:.1f}"/>')
    level, before = 0, -math.inf
    for dot in sorted(strip.dots, key=lambda dot: dot.value):
        x = scale.across(dot.value)
        level = (level + 1) % 3 if x - before < NEAR else 0
        before = x
        color = {"dot": "dot c0", "best": "dot c2", "hollow": "hollow c1"}[dot.look]
        note = f"<title>{escape(dot.label)}: {dot.value:.4f}</title>"
        size = 4.5 if dot.look == "best" else 3.5
        parts.append(
            f'<circle class="{color}" cx="{x:.1f}" cy="{y + (0, -5, 5)[level]:.1f}" r="{size}">{note}</circle>'
        )
    return parts
