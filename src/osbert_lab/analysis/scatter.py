"""Scatter plots as SVG: items by two coordinates, each with a tooltip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from osbert.reports.plot import HEIGHT, WIDTH, picture

MARGIN = 12


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
