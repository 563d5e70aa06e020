"""SVG plots: well-formed, inside their frame, and saying what they are given."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.reports.plot import HEIGHT, RIGHT, WIDTH, Mark, Series, line_plot, short, smooth, ticks

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


@given(
    ys=st.lists(NUMBERS | st.just(math.nan) | st.just(math.inf), max_size=30),
    marks=st.lists(NUMBERS, max_size=3),
    look=st.sampled_from(["line", "faint", "dots"]),
)
def test_everything_lies_inside_the_picture(ys, marks, look) -> None:
    series = [Series(name="a <b> & c", points=list(enumerate(ys)), look=look)]
    found = [Mark(value=value, label="here & there") for value in marks]
    svg = parsed(line_plot(series, marks=found, title="<t>"))
    for line in svg.iter("polyline"):
        for pair in line.attrib["points"].split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT
    for element in svg.iter():
        for name in ("x1", "x2", "cx"):
            assert 0 <= float(element.attrib.get(name, 0)) <= WIDTH
        for name in ("y1", "y2", "cy"):
            assert 0 <= float(element.attrib.get(name, 0)) <= HEIGHT


def test_a_curve_by_hand() -> None:
    svg = line_plot([Series(name="loss", points=[(0, 0.0), (10, 1.0)])], title="Loss", percent=True)
    assert 'aria-label="Loss"' in svg
    assert "<title>loss 10: 100.0%</title>" in svg
    assert ">50%<" in svg or ">60%<" in svg
    assert svg.count("<polyline") == 1


def test_marks_are_lines_with_their_words() -> None:
    svg = line_plot([Series(name="a", points=[(0, 5.0), (9, 4.0)])], marks=[Mark(value=9, label="ln V")], title="t")
    assert svg.count('class="mark"') == 1
    assert ">ln V<" in svg


def test_nothing_measured_is_said() -> None:
    assert "nothing was measured" in line_plot([], title="t")
    assert "nothing was measured" in line_plot([Series(name="a", points=[(1, math.nan)])], title="t")


def test_a_single_point_is_a_dot() -> None:
    assert 'class="dot c0"' in line_plot([Series(name="a", points=[(3, 2.0)])], title="t")


def test_long_curves_are_thinned_to_their_end() -> None:
    svg = parsed(line_plot([Series(name="a", points=[(n, n) for n in range(100_000)])], title="t"))
    (line,) = svg.iter("polyline")
    pairs = line.attrib["points"].split()
    assert len(pairs) <= 602
    assert pairs[-1].split(",")[0] == f"{WIDTH - RIGHT:.1f}"


@given(low=NUMBERS, size=st.floats(1e-3, 1e6))
def test_ticks_are_round_and_in_range(low, size) -> None:
    found = ticks(low, low + size)
    assert 2 <= len(found) <= 12
    assert all(low - 1e-6 * size <= value <= low + 1.000001 * size for value in found)


def test_ticks_of_nothing() -> None:
    assert ticks(3.0, 3.0) == [3.0]
    assert ticks(0.0, 5e-324) == [0.0]  # the smallest number: there is no power of ten below it
    assert ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.25, "0.25"), (3e-5, "3e-05"), (1200, "1,200"), (45_000, "45k"), (1_000_000, "1M"), (-7, "-7"),
     (2_500_000, "2.5M")],
)  # fmt: skip
def test_short_numbers(value, words) -> None:
    assert short(value) == words


def test_smoothing_is_the_mean_of_the_neighbours() -> None:
    points = [(n, float(n % 2)) for n in range(5)]
    assert smooth(points, window=1) == points
    assert smooth(points, window=3)[2] == (2, pytest.approx(2 / 3))
    assert smooth(points, window=3)[0] == (0, 0.5)
    assert smooth([], window=5) == []
