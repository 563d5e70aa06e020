"""Intervals of a score on one set of rows: as wide as the theory says, for few rows and many."""

from __future__ import annotations

import math

import numpy as np
import pytest

from osbert.evaluation.intervals import score_interval
from osbert.tasks import Prediction, Record
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.contrastive import Contrastive
from osbert.tasks.kinds.regress import Regress


@pytest.mark.parametrize("rows", [50, 400, 6000])
def test_the_interval_of_an_accuracy_is_that_of_a_share(rows: int) -> None:
    task = Classify(labels=("a", "b"))
    right = [place % 4 > 0 for place in range(rows)]
    records = [Record(number=place, texts=("t",), label="a") for place in range(rows)]
    found = score_interval(task, [Prediction(value="a" if own else "b") for own in right], records)
    assert found is not None and (found.metric, found.rows) == ("accuracy", rows)
    assert found.score == pytest.approx(np.mean(right))
    half = 1.96 * math.sqrt(found.score * (1 - found.score) / rows)
    assert found.high - found.score == pytest.approx(half, rel=0.3)
    assert found.score - found.low == pytest.approx(half, rel=0.3)
    assert found.few == (rows < 100)
    assert ("under 100" in found.describe()) == found.few


def test_a_score_that_is_always_the_same_has_an_interval_without_width() -> None:
    records = [Record(number=place, texts=("t",), label=float(place)) for place in range(20)]
    found = score_interval(Regress(), [Prediction(value=record.label) for record in records], records)
    assert found is not None and (found.low, found.score, found.high) == (1, 1, 1)


def test_a_search_among_the_rows_has_no_interval() -> None:
    assert score_interval(Contrastive(), [], []) is None
    assert Contrastive(sts="pairs.csv").by_rows
