"""Rows with intervals, bars and the confusion matrix: well-formed, inside their frame, the numbers where they are."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from osbert.reports.charts import (
    MOST_LABELS,
    NONE,
    OTHERS,
    BarRow,
    IntervalRow,
    bar_plot,
    interval_plot,
    matrix_plot,
)
from osbert.reports.plot import WIDTH

VALUES = st.floats(-1e6, 1e6, allow_nan=False) | st.just(math.nan)
NAMES = st.text(max_size=60).filter(str.isprintable)


def inside(figure: str) -> ElementTree.Element:
    """Return the picture, of which everything lies inside."""
    (svg,) = ElementTree.fromstring(figure).iter("svg")
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    assert width == WIDTH
    for element in svg.iter():
        numbers = {name: float(element.attrib.get(name, 0)) for name in ("x", "x1", "x2", "cx", "y", "y1", "y2", "cy")}
        across, up = numbers["x"] + float(element.attrib.get("width", 0)), numbers["y"]
        assert all(0 <= numbers[name] <= width for name in ("x", "x1", "x2", "cx")) and across <= width + 0.1
        assert all(0 <= numbers[name] <= height for name in ("y", "y1", "y2", "cy"))
        assert up + float(element.attrib.get("height", 0)) <= height
    return svg


@given(rows=st.lists(st.tuples(NAMES, VALUES, VALUES), max_size=6), mark=VALUES)
def test_intervals_lie_inside_the_picture(rows: list[tuple[str, float, float]], mark: float) -> None:
    made = [IntervalRow(name=name, value=value, interval=(value - 1, high), note="8/9") for name, value, high in rows]
    svg = inside(interval_plot(made, title="<t>", mark=mark))
    assert len(list(svg.iter("circle"))) == sum(math.isfinite(value) for _, value, _ in rows)


@given(rows=st.lists(st.tuples(NAMES, st.floats(0, 1e6), st.floats(0, 1e6) | st.none()), max_size=6))
def test_bars_lie_inside_the_picture(rows: list[tuple[str, float, float | None]]) -> None:
    made = [BarRow(name=name, values=(one, two)) for name, one, two in rows]
    svg = inside(bar_plot(made, ("training", "development"), title="<t>"))
    assert len(list(svg.iter("rect"))) in (0, sum(two is not None for *_, two in rows) + len(rows))


def test_a_value_says_its_interval() -> None:
    figure = interval_plot([IntervalRow(name="pos", value=0.5, interval=(0.25, 0.75), note="5/10")], title="Recall")
    assert "pos: 0.5000, 95% interval 0.2500 to 0.7500" in figure and ">5/10<" in figure
    assert "nothing was measured" in interval_plot([], title="t")
    assert "nothing was measured" in bar_plot([BarRow(name="a", values=[0])], [""], title="t")


@given(pairs=st.lists(st.tuples(NAMES, NAMES), max_size=60))
def test_a_matrix_lies_inside_the_picture(pairs: list[tuple[str, str]]) -> None:
    inside(matrix_plot(pairs, title="<t>"))


def test_a_matrix_by_hand() -> None:
    figure = matrix_plot([("a", "a")] * 3 + [("a", "b"), ("b", "b"), ("", "b")], title="t")
    for said in (
        "a predicted as a: 3 of 4 (75.0%)",
        "a predicted as b: 1 of 4 (25.0%)",
        f"{NONE} predicted as b: 1 of 1",
    ):
        assert said in figure
    assert figure.count("<rect") == 9


def test_of_many_labels_the_rarest_are_one() -> None:
    pairs = [(f"l{number}", f"l{number}") for number in range(MOST_LABELS + 5) for _ in range(number + 1)]
    figure = matrix_plot(pairs, title="t")
    assert figure.count("<rect") == (MOST_LABELS + 1) ** 2
    assert f"{OTHERS} predicted as {OTHERS}: 15 of 15" in figure and "l4 " not in figure
