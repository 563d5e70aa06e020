"""Strips of dots as SVG: a row for each group of runs, a dot for each run, and a line at the median."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from osbert.reports.charts import PlotScale, scale_ends
from osbert.reports.plot import BOTTOM, RIGHT, TOP, WIDTH, fit_text, picture

NAME_ROW = 18
"""Height of the name of a strip, above its dots, in pixels."""
STRIP_ROW = 26
"""Height of a strip without overlapping dots."""
STRIP_LEFT = 16
"""Left end of the scale of strips."""
NEAR = 8.0
"""Dots closer than this are placed at different heights, this far apart."""
LEVELS = 11
"""Most heights in a row; if still more dots coincide, some hide others."""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One run: its value, tooltip and look; a hollow dot is not part of the median."""

    value: float
    label: str
    look: Literal["dot", "best", "hollow"] = "dot"


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A row of the plot: its name and its dots."""

    name: str
    dots: Sequence[Dot]


def strip_plot(strips: Sequence[Strip], *, title: str) -> str:
    """Return a <figure> of the strips on one scale; values that are not finite are skipped."""
    strips = [Strip(name=strip.name, dots=[dot for dot in strip.dots if math.isfinite(dot.value)]) for strip in strips]
    values = [dot.value for strip in strips for dot in strip.dots]
    if not values:
        return picture([], title=title, height=TOP + BOTTOM + STRIP_ROW)
    scale = PlotScale(left=STRIP_LEFT, right=WIDTH - RIGHT, ends=scale_ends(values, relative=0.02, absolute=0.01))
    rows = [_levels([scale.across(dot.value) for dot in strip.dots]) for strip in strips]
    room = [NAME_ROW + max(STRIP_ROW, STRIP_ROW - NEAR + NEAR * max(levels, default=0)) for levels in rows]
    height = TOP + BOTTOM + sum(room)
    parts = scale.grid(height, count=5)
    for index, (strip, levels) in enumerate(zip(strips, rows)):
        top = TOP + sum(room[:index])
        parts.append(
            f'<text class="tick" x="4" y="{top + NAME_ROW - 5:.1f}">{escape(fit_text(strip.name, WIDTH - 8))}</text>'
        )
        parts += _strip_row(strip, scale, levels, top + (room[index] + NAME_ROW) / 2)
    return picture(parts, title=title, height=height)


def _levels(positions: Sequence[float]) -> list[int]:
    """Return for each dot, at x = places, the lowest level without a near dot; level 0 is the centre line."""
    levels: list[int] = [0] * len(positions)
    before: list[int] = []
    for number in sorted(range(len(positions)), key=positions.__getitem__):
        # Dots are visited from left to right: only recent ones can be near.
        before = [other for other in before if positions[number] - positions[other] < NEAR]
        taken = {levels[other] for other in before}
        levels[number] = next((level for level in range(LEVELS) if level not in taken), LEVELS - 1)
        before.append(number)
    return levels


def _strip_row(strip: Strip, scale: PlotScale, levels: Sequence[int], y: float) -> list[str]:
    parts = []
    counted = [dot.value for dot in strip.dots if dot.look != "hollow"]
    if counted:
        x = scale.across(statistics.median(counted))
        parts.append(f'<line class="median" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 11:.1f}" y2="{y + 11:.1f}"/>')
    for dot, level in zip(strip.dots, levels):
        color = {"dot": "dot c0", "best": "dot c2", "hollow": "hollow c1"}[dot.look]
        note = f"<title>{escape(dot.label)}: {dot.value:.4f}</title>"
        size = 4.5 if dot.look == "best" else 3.5
        up = y + (level + 1) // 2 * NEAR * (-1 if level % 2 else 1)  # 0, then above and below in turn
        parts.append(
            f'<circle class="{color}" cx="{scale.across(dot.value):.1f}" cy="{up:.1f}" r="{size}">{note}</circle>'
        )
    return parts
