"""The numbers of a comparison, against numpy and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from osbert_lab.study.summaries import sortable, summaries, summarise

SCORES = st.lists(st.floats(-1, 1, allow_nan=False).map(lambda value: round(value, 4)), min_size=2, max_size=9)


@given(values=SCORES)
def test_a_summary_is_what_numpy_and_scipy_say(values: list[float]) -> None:
    found = summarise(values)
    assert found.count == len(values)
    assert found.median == pytest.approx(np.median(values))
    assert found.mean == pytest.approx(np.mean(values), abs=1e-12)
    assert found.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    assert (found.lowest, found.highest) == (min(values), max(values))
    if len(values) < 3:
        assert all(map(math.isnan, found.interval)) and "too few for an interval" in found.describe()
        return
    if found.deviation > 1e-9:
        theirs = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
        assert found.interval == pytest.approx(theirs)
    assert found.interval[0] <= found.mean <= found.interval[1]


def test_one_run_has_no_deviation_and_says_so() -> None:
    found = summarise([0.5])
    assert math.isnan(found.deviation) and all(map(math.isnan, found.interval))
    assert (found.median, found.mean) == (0.5, 0.5)
    assert "one run" in found.describe() and "nan" not in found.describe()
    with pytest.raises(ValueError, match="no run"):
        summarise([])


def test_metrics_that_all_runs_have_are_summarised() -> None:
    found = summaries([{"accuracy": 0.5, "f1/rare": 0.0}, {"accuracy": 0.7}])
    assert list(found) == ["accuracy"] and found["accuracy"].mean == pytest.approx(0.6)


def test_an_interval_ends_at_the_range_of_its_metric() -> None:
    runs = [{"accuracy": 1.0, "macro_f1": 0.1, "matthews": 1.0, "profit": 1.0, "f1": 80.0}] * 2
    last = {"accuracy": 0.8, "macro_f1": 0.0, "matthews": -1.0, "profit": 0.8, "f1": 90.0}
    found = {name: summary.interval for name, summary in summaries([*runs, last]).items()}
    assert found["accuracy"][1] == 1 and found["macro_f1"][0] == 0 and found["matthews"] == (-1, 1)
    # Unknown names, and numbers outside a range, are not cut.
    assert found["profit"][1] > 1 and found["f1"][1] > 90


def test_what_is_no_number_is_the_lowest_score() -> None:
    assert sorted([0.1, math.nan, -2.0], key=sortable)[1:] == [-2.0, 0.1]
    assert sortable(math.nan) < sortable(-1e300)
