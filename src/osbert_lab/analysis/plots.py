"""Plots as SVG: heat maps of layers and heads, where larger values are darker, and scatter plots of items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from osbert.reports.plot import HEIGHT, RIGHT, WIDTH, picture, short

LEFT, TOP = 34, 26
MARGIN = 12
"""Pixels around a scatter plot."""
MOST_HIGH = 26
"""Largest height of a cell, in pixels."""
NUMBERED = 26
"""Smallest width of a cell that shows its number, in pixels."""
DARKEST = 0.55
"""Opacity of the darkest cell; text on it stays legible."""


def heat_map(
    values: NDArray[np.float64],
    notes: Mapping[tuple[int, int], str],
    *,
    title: str,
    ends: tuple[float, float],
    columns: Literal["head", "layer"] = "head",
) -> str:
    """Return a <figure> of values (layers, C) with the lowest layer at the bottom; NaN is an empty cell.

    `notes`: tooltips of cells. `ends`: the values of no colour and of the darkest. Layers count from 1; if the columns
    are layers too, 0 is the embedding output.
    """
    height, width = values.shape
    if not values.size:
        return picture([], title=title)
    wide = (WIDTH - LEFT - RIGHT) / width
    high = min(MOST_HIGH, wide)
    first = int(columns == "head")
    low, most = ends
    parts = [
        f'<text class="tick" x="{LEFT}" y="10">{columns} →</text>',
        f'<text class="tick end" x="{WIDTH - RIGHT}" y="10">{short(low)} (faint) to {short(most)} (strong)</text>',
        f'<text class="tick" x="2" y="{TOP - 6}">layer</text>',
    ]
    bottom = TOP + high * height
    every = max(1, math.ceil(16 / high))
    for row in range(height):
        y = bottom - high * (row + 1)
        if row % every == 0:
            parts.append(f'<text class="tick end" x="{LEFT - 6}" y="{y + high / 2 + 4:.1f}">{row + first}</text>')
        for column in range(width):
            value = values[row, column]
            if math.isfinite(value):
                parts += _cell(value, (LEFT + wide * column, y, wide, high), notes.get((row, column), ""), ends)
    across = max(1, math.ceil(18 / wide))
    for column in range(0, width, across):
        x = LEFT + wide * (column + 0.5)
        parts.append(f'<text class="tick middle" x="{x:.1f}" y="{bottom + 14:.1f}">{column + first}</text>')
    return picture(parts, title=title, height=bottom + 20)


def _cell(value: float, box: tuple[float, float, float, float], note: str, ends: tuple[float, float]) -> list[str]:
    x, y, wide, high = box
    low, most = ends
    depth = min(max((value - low) / (most - low), 0.0), 1.0) if most > low else 0.0
    parts = [
        f'<rect class="cell c0" x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{wide - 1:.1f}" height="{high - 1:.1f}" '
        f'fill-opacity="{DARKEST * depth:.3f}"><title>{escape(note or short(value))}</title></rect>'
    ]
    if wide >= NUMBERED and high >= 16:
        number = f"{value:.2f}".removeprefix("0") if abs(value) < 10 else f"{value:.0f}"
        where = f'x="{x + wide / 2:.1f}" y="{y + high / 2 + 4:.1f}" pointer-events="none"'
        parts.append(f'<text class="number middle" {where}>{number}</text>')
    return parts


@dataclass(frozen=True, kw_only=True)
class Spot:
    """An item: its coordinates, label and colour."""

    x: float
    y: float
    label: str
    color: int = 0


def scatter_plot(spots: Sequence[Spot], *, title: str, keys: Sequence[tuple[str, int]] = ()) -> str:
    """Return a <figure> of spots; both axes have the same scale and no numbers. `keys`: the legend of colours."""
    if not spots:
        return picture([], title=title)
    xs, ys = [spot.x for spot in spots], [spot.y for spot in spots]
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    scale = min((WIDTH - 2 * MARGIN) / (wide or 1e-12), (HEIGHT - 2 * MARGIN) / (high or 1e-12))
    left, low = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    parts = [
        f'<circle class="dot c{spot.color}" cx="{WIDTH / 2 + (spot.x - left) * scale:.1f}" '
        f'cy="{HEIGHT / 2 - (spot.y - low) * scale:.1f}" r="4.5"><title>{escape(spot.label)}</title></circle>'
        for spot in spots
    ]
    return picture(parts, title=title, keys=keys)
