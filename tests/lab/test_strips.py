"""Strip plots: well-formed, inside their frame, the median where it is, every run to be pointed at."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from osbert.reports.plot import WIDTH
from osbert_lab.strips import NEAR, Dot, Strip, strip_plot

VALUES = st.lists(st.floats(-1e3, 1e3, allow_nan=False) | st.just(math.nan), max_size=8)


@given(rows=st.lists(VALUES, max_size=5), name=st.text("ab <&", max_size=80))
def test_everything_lies_inside_the_picture(rows: list[list[float]], name: str) -> None:
    strips = [Strip(name=name, dots=[Dot(value=value, label="run & <seed>") for value in row]) for row in rows]
    (svg,) = ElementTree.fromstring(strip_plot(strips, title="<t>")).iter("svg")
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for element in svg.iter():
        for keys, most in ((("x1", "x2", "cx"), width), (("y1", "y2", "cy"), height)):
            assert all(0 <= float(element.attrib.get(key, 0)) <= most for key in keys)
    finite = sum(math.isfinite(value) for row in rows for value in row)
    assert len(list(svg.iter("circle"))) == finite
    assert width == WIDTH


def test_a_strip_by_hand() -> None:
    dots = [
        Dot(value=0.1, label="seed 0", look="hollow"),
        Dot(value=0.5, label="seed 1"),
        Dot(value=0.7, label="seed 2", look="best"),
        Dot(value=0.6, label="seed 3"),
    ]
    svg = strip_plot([Strip(name="lr 3e-05", dots=dots)], title="accuracy")
    assert "<title>seed 2: 0.7000</title>" in svg and ">lr 3e-05<" in svg
    assert svg.count('class="hollow c1"') == 1 and svg.count('class="dot c2"') == 1
    (median,) = [line for line in svg.splitlines() if 'class="median"' in line]
    (middle,) = [line for line in svg.splitlines() if "seed 3" in line]
    assert median.split('x1="')[1].split('"')[0] == middle.split('cx="')[1].split('"')[0]


def test_nothing_measured_is_said() -> None:
    assert "nothing was measured" in strip_plot([], title="t")
    assert "nothing was measured" in strip_plot([Strip(name="a", dots=[Dot(value=math.nan, label="x")])], title="t")


def test_dots_of_one_value_lie_beside_each_other() -> None:
    svg = ElementTree.fromstring(strip_plot([Strip(name="a", dots=[Dot(value=1, label="x")] * 7)], title="t"))
    heights = sorted(float(dot.attrib["cy"]) for dot in svg.iter("circle"))
    assert [upper - lower for lower, upper in itertools.pairwise(heights)] == [NEAR] * 6
    assert len({dot.attrib["cx"] for dot in svg.iter("circle")}) == 1
