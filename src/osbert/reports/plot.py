"""Line plots as SVG text: no library, no script; colours come from the page, so that light and dark mode both work.

A picture has the width of a phone; a wider page shows two side by side. Title and legend are text of the page, which
wraps.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

WIDTH, HEIGHT = 400, 230
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 10, 38
LETTER = 7.0
"""Approximate width of a letter, in pixels."""
MOST_SIGNS = 6
"""Most characters of a small number beside the axis."""
MOST_POINTS = 600
"""Most points of a curve, approximately; longer ones are thinned."""
MOST_NOTES = 120
"""Most points of a curve with a tooltip."""

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Series:
    """A curve: `points` (x, y) by ascending x. Spots are not joined and may have any order.

    A faint curve is drawn behind the others and has no entry in the legend.
    """

    name: str
    points: Sequence[Point]
    look: Literal["line", "faint", "dots", "spots"] = "line"
    color: int = 0


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A horizontal line at a value, with its label."""

    value: float
    label: str


@dataclass(frozen=True)
class _Frame:
    """The scales of both axes."""

    x: tuple[float, float]
    y: tuple[float, float]

    @classmethod
    def around(cls, points: Sequence[Point], heights: Sequence[float]) -> _Frame:
        """Return the scales that show all points, and further values of y."""
        across = [x for x, _ in points]
        up = [*heights, *[y for _, y in points]]
        low, high = min(up), max(up)
        margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        bottom = low - margin
        # Start at 0 if the values come near it, so that heights can be compared.
        if low >= 0 and (low < 0.35 * high or bottom < 0):
            bottom = 0.0
        right = max(across)
        left = 0.0 if 0 <= min(across) < 0.3 * right else min(across)
        return cls(x=(left, right if right > left else left + 1.0), y=(bottom, high + margin))

    def across(self, value: float) -> float:
        low, high = self.x
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def up(self, value: float) -> float:
        low, high = self.y
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def line_plot(
    series: Sequence[Series],
    *,
    marks: Sequence[Mark] = (),
    title: str,
    percent: bool = False,
    across: str = "step",
) -> str:
    """Return a <figure> of the curves, with horizontal lines at the marks; `percent`: show y as a percentage.

    `across`: the name of x. Points that are not finite are skipped. Without points the picture says so.
    """
    curves = []
    for curve in series:
        finite = [(x, y) for x, y in curve.points if math.isfinite(x) and math.isfinite(y)]
        # Ceiling division; the last point is kept in any case, as it is the final value.
        thinned = finite[:: max(1, -(-len(finite) // MOST_POINTS))]
        if finite and thinned[-1] != finite[-1]:
            thinned.append(finite[-1])
        curves.append(replace(curve, points=thinned))
    points = [point for curve in curves for point in curve.points]
    if not points:
        return picture([], title=title)
    frame = _Frame.around(points, [mark.value for mark in marks])
    parts = _axes(frame, percent=percent, across=across) + _marks(frame, marks)
    for curve in sorted(curves, key=lambda curve: curve.look != "faint"):
        parts += _curve(frame, curve, percent=percent)
    keys = [(curve.name, curve.color) for curve in curves if curve.points and curve.name and curve.look != "faint"]
    return picture(parts, title=title, keys=keys)


def picture(parts: Sequence[str], *, title: str, keys: Sequence[tuple[str, int]] = (), height: float = HEIGHT) -> str:
    """Return a <figure>: the title, the legend (`keys`: names and colours) and an <svg> of the parts.

    Without parts it says that nothing was measured.
    """
    nothing = f'<text class="note" x="{WIDTH / 2}" y="{height / 2:g}">nothing was measured</text>'
    legend = "".join(f' <span class="key k{color}">{escape(name)}</span>' for name, color in keys)
    head = [
        f'<figure class="plot"><figcaption><b>{escape(title)}</b>{legend}</figcaption>',
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">',
    ]
    return "\n".join([*head, *(parts or [nothing]), "</svg></figure>"])


def fit_text(text: str, room: float) -> str:
    """Return text shortened with an ellipsis to a width of about `room` pixels."""
    most = max(1, int(room / LETTER))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def smooth(points: Sequence[Point], *, window: int) -> list[Point]:
    """Return the moving average over `window` points centred at each point, fewer at the ends."""
    half = window // 2
    result = []
    for index, (x, _) in enumerate(points):
        near = points[max(0, index - half) : index + half + 1]
        result.append((x, sum(y for _, y in near) / len(near)))
    return result


def ticks(low: float, high: float, *, count: int = 5) -> list[float]:
    """Return about `count` round numbers (1, 2 or 5 times a power of ten apart) from `low` to `high`."""
    rough = (high - low) / count
    if not rough >= sys.float_info.min:  # below it there is no power of ten to divide by
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """Return a number in few characters, for an axis.

    >>> [short(value) for value in (0.25, 1200, 45_000, 0.0008, 0.00014, 3e-5)]
    ['0.25', '1,200', '45k', '0.0008', '1.4e-4', '3e-05']
    """
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e9):
        brief = f"{value:.2g}"
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return brief if len(brief) <= MOST_SIGNS else f"{float(mantissa):g}e{int(exponent)}"
    for unit, letter in ((1e6, "M"), (1e4, "k")):
        if size >= unit:
            return f"{value / (1e3 if letter == 'k' else 1e6):,.6g}{letter}"
    return f"{value:,.4g}" if size < 1000 else f"{value:,.0f}"


def _axes(frame: _Frame, *, percent: bool, across: str) -> list[str]:
    parts = []
    for value in ticks(*frame.y):
        y = frame.up(value)
        label = f"{value:.0%}" if percent else short(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4:.1f}">{label}</text>')
    for value in ticks(*frame.x):
        x = frame.across(value)
        parts.append(f'<text class="tick middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{short(value)}</text>')
    parts.append(f'<text class="tick end" x="{WIDTH - RIGHT}" y="{HEIGHT - 5}">{escape(across)}</text>')
    return parts


def _marks(frame: _Frame, marks: Sequence[Mark]) -> list[str]:
    parts = []
    taken: list[float] = []
    for mark in sorted(marks, key=lambda mark: -mark.value):
        y = frame.up(mark.value)
        words = y - 5
        # A label that would overlap another one goes below its line.
        if any(abs(words - other) < 13 for other in taken):
            words = y + 14
        taken.append(words)
        parts.append(f'<line class="mark" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = escape(fit_text(mark.label, WIDTH - LEFT - RIGHT))
        parts.append(f'<text class="words end" x="{WIDTH - RIGHT - 4}" y="{words:.1f}">{label}</text>')
    return parts


def _curve(frame: _Frame, curve: Series, *, percent: bool) -> list[str]:
    coordinates = [(frame.across(x), frame.up(y)) for x, y in curve.points]
    kind = f"c{curve.color} {curve.look}"
    parts = []
    if len(coordinates) > 1 and curve.look != "spots":
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in coordinates)
        parts.append(f'<polyline class="{kind}" points="{path}"/>')
    if curve.look == "faint":
        return parts
    if curve.look in ("dots", "spots") or len(coordinates) == 1:
        parts += [f'<circle class="dot c{curve.color}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in coordinates]
    stride = max(1, -(-len(coordinates) // MOST_NOTES))
    for (x, y), (across, up) in list(zip(curve.points, coordinates, strict=True))[::stride]:
        value = f"{y:.1%}" if percent else f"{y:.4g}"
        note = f"{curve.name} {short(x)}: {value}".strip()
        parts.append(
            f'<circle class="aim" cx="{across:.1f}" cy="{up:.1f}" r="7"><title>{escape(note)}</title></circle>'
        )
    return parts


def explain_picture(picture: str, *, plain: str, caution: str) -> str:
    """Return a <figure> with its explanation under the title, and below it how it must not be read."""
    head, body = picture.split("</figcaption>", 1)
    inner, tail = body.rsplit("</figure>", 1)
    explanation = f"</figcaption><p>{escape(plain)}</p>"
    return f'{head}{explanation}{inner}<p class="soft">{escape(caution)}</p></figure>{tail}'
