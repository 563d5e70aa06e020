"""Intervals of a score on one set of rows: as wide as the theory says, for few rows and many."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from osbert.evaluation.bootstrap import bootstrap_interval, score_intervals, wilson_interval
from osbert.tasks import Prediction, Record
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.contrastive import Contrastive
from osbert.tasks.kinds.regress import Regress


@pytest.mark.parametrize("rows", [50, 400, 6000])
def test_the_interval_of_an_accuracy_is_that_of_a_share(rows: int) -> None:
    task = Classify(labels=("a", "b"))
    right = [place % 4 > 0 for place in range(rows)]
    records = [Record(number=place, texts=("t",), label="a") for place in range(rows)]
    found = score_intervals(task, [Prediction(value="a" if own else "b") for own in right], records)["accuracy"]
    assert (found.metric, found.rows) == ("accuracy", rows)
    assert found.score == pytest.approx(np.mean(right))
    half = 1.96 * math.sqrt(found.score * (1 - found.score) / rows)
    assert found.high - found.score == pytest.approx(half, rel=0.3)
    assert found.score - found.low == pytest.approx(half, rel=0.3)
    assert found.few == (rows < 100)
    assert ("under 100" in found.describe()) == found.few


@pytest.mark.parametrize("rows", [30, 400])
def test_of_few_rows_the_samples_are_those_of_a_comparison(rows: int) -> None:
    records = [Record(number=place, texts=("t",), label="a") for place in range(rows)]
    said = ["ab"[place % 3 > 1] for place in range(rows)]
    found = score_intervals(Classify(labels=("a", "b")), [Prediction(value=one) for one in said], records)["accuracy"]
    assert (found.low, found.high) == pytest.approx(bootstrap_interval([float(one == "a") for one in said]))


def test_a_score_that_is_always_the_same_has_no_interval_without_width() -> None:
    records = [Record(number=place, texts=("t",), label=float(place)) for place in range(20)]
    assert not score_intervals(Regress(), [Prediction(value=record.label) for record in records], records)
    labelled = [Record(number=place, texts=("t",), label="ab"[place % 2]) for place in range(10)]
    found = score_intervals(
        Classify(labels=("a", "b")), [Prediction(value=str(record.label)) for record in labelled], labelled
    )
    assert set(found) == {"accuracy"} and (found["accuracy"].low, found["accuracy"].high) == wilson_interval(10, 10)
    assert "(Wilson over 10 rows)" in found["accuracy"].describe()


def test_a_metric_that_is_not_defined_for_a_sample_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def metrics(task: Classify, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        if len({record.label for record in records}) < 2:
            raise ZeroDivisionError
        return {"accuracy": sum(one.value == record.label for one, record in zip(predictions, records)) / len(records)}

    monkeypatch.setattr(Classify, "metrics", metrics)
    records = [Record(number=place, texts=("t",), label="ab"[place]) for place in range(2)]
    assert not score_intervals(Classify(labels=("a", "b")), [Prediction(value="a")] * 2, records)  # always a half


def test_a_search_among_the_rows_has_no_interval() -> None:
    assert not score_intervals(Contrastive(), [], [])
    assert Contrastive(sts="pairs.csv").by_rows
