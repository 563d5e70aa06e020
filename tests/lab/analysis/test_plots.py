"""Pictures of an analysis: every cell and spot with its note, what is not there left empty, text escaped."""

from __future__ import annotations

import numpy as np

from osbert.reports.plot import explain_picture
from osbert_lab.analysis.plots import Spot, heat_map, scatter_plot


def test_a_heat_map_has_a_cell_for_each_value_and_says_what_it_is() -> None:
    values = np.array([[0.0, 0.5, np.nan], [1.0, 2.0, -1.0]])
    picture = heat_map(values, {(0, 1): "head 1-2: <half>"}, title="To a & b", ends=(0, 1))
    assert picture.count("<rect") == 5 and "head 1-2: &lt;half&gt;" in picture and "To a &amp; b" in picture
    assert picture.count('fill-opacity="0.550"') == 2  # 1, and 2, which is past the end
    assert picture.count('fill-opacity="0.000"') == 2


def test_a_map_of_many_heads_has_no_numbers_and_one_of_nothing_says_so() -> None:
    assert 'class="number' not in heat_map(np.zeros((24, 16)), {}, title="large", ends=(0, 1))
    assert "nothing was measured" in heat_map(np.empty((0, 0)), {}, title="none", ends=(0, 1))


def test_a_scatter_plot_keeps_its_proportions_inside_of_the_picture() -> None:
    spots = [Spot(x=0, y=0, label="a<b"), Spot(x=2, y=0, label="b"), Spot(x=0, y=1, label="c", color=3)]
    picture = scatter_plot(spots, title="heads", keys=[("layer 1", 0)])
    assert picture.count("<circle") == 3 and "a&lt;b" in picture and "layer 1" in picture
    assert "nothing was measured" in scatter_plot([], title="heads")
    assert "<circle" in scatter_plot(spots[:1], title="one")


def test_sentences_stand_above_and_below_a_picture() -> None:
    said = explain_picture(scatter_plot([], title="t"), plain="more & more", caution="not <all>")
    assert said.index("more &amp; more") < said.index("<svg") < said.index("not &lt;all&gt;") < said.index("</figure>")
