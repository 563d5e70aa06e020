"""Timelines: well-formed, inside their frame, a line for each model in its order, names where there is room."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from osbert.reports.plot import LETTER, WIDTH
from osbert_lab.papers.timeline import TimelineRow, TimelineScore, timeline

VALUES = st.floats(-100, 100)


@given(values=st.lists(st.tuples(VALUES, VALUES), max_size=6), name=st.text("ab <&", max_size=60))
def test_everything_lies_inside_the_picture(values: list[tuple[float, float]], name: str) -> None:
    rows = [
        TimelineRow(
            name=name,
            year=2013 + place // 2,
            scores={"a": TimelineScore(value=one, low=one - 2, high=one + 1), "b": TimelineScore(value=two)},
        )
        for place, (one, two) in enumerate(values)
    ]
    (svg,) = ElementTree.fromstring(timeline(rows, ["a", "b"], title="<t>")).iter("svg")
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    assert width == WIDTH and len(list(svg.iter("circle"))) == 2 * len(values)
    for element in svg.iter():
        for keys, most in ((("x", "x1", "x2", "cx"), width), (("y", "y1", "y2", "cy"), height)):
            assert all(0 <= float(element.attrib.get(key, 0)) <= most for key in keys)
    for text in svg.iter("text"):
        if text.text and text.attrib.get("class") in (None, "end"):
            start, room = float(text.attrib["x"]), LETTER * len(text.text)
            assert start - room >= 0 if text.attrib.get("class") else start + room <= WIDTH + LETTER


def test_years_and_names_by_hand() -> None:
    there = {"tuned": TimelineScore(value=71.26, low=70, high=73)}
    rows = [TimelineRow(name=name, year=year, scores=there) for name, year in (("A", 2018), ("B", 2018), ("C", 2020))]
    figure = timeline([*rows, TimelineRow(name="D", year=2020, scores={})], ["tuned"], title="SST-2")
    assert figure.count(">2018<") == figure.count(">2020<") == 1 and figure.index(">A<") < figure.index(">B<")
    assert "<title>C, tuned: 71.3</title>" in figure and "D: not measured" in figure
    assert "nothing was measured" in timeline([TimelineRow(name="D", year=2020, scores={})], ["tuned"], title="t")
    assert math.isnan(TimelineScore(value=1.0).low)
