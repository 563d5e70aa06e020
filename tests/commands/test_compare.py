"""osbert compare: runs on the same rows, their tests, and the page; the same from Python."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from scipy import stats

import osbert
from osbert.commands.compare import compare
from osbert.commands.evaluate import evaluate
from osbert.evaluation.bootstrap import wilson_interval
from osbert.runs.compare import compare_evaluations
from osbert.runs.evaluate import Evaluation
from osbert.tasks import Prediction, Record
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.regress import Regress
from refusals import refusal
from tiny_runs import TASKS, write_run


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that has learnt nothing."""
    return write_run(tmp_path_factory.mktemp("runs") / "other", TASKS["classifier"])


def test_two_runs_are_compared_and_the_page_shows_where_they_differ(
    run: Path, other: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "compared.html"
    compare(run, other, data=table, out=page)
    said = capsys.readouterr().out
    found = osbert.compare([run, other], data=table)
    for one in found.runs:
        assert one.metrics == osbert.evaluate(run if one.name == run.name else other, data=table)
        assert one.name in said and f"{one.metrics['accuracy']:.4f}" in said
    (test,) = found.tests
    assert test.right is not None
    discordant = test.right.only_first + test.right.only_second
    assert 0 < discordant == len(found.differing)
    assert test.right.p_value == pytest.approx(stats.binomtest(test.right.only_first, discordant).pvalue)
    low, high = test.score.interval
    assert low <= test.score.difference <= high and "McNemar" in said and "Holm" not in said
    text = page.read_text()
    assert text.count('class="card"') == min(100, discordant) and f"{run.name}: predicted" in text
    rows = iter([{"text": "the good film", "label": "pos"}, {"text": "the bad film", "label": "neg"}])
    assert osbert.compare([run, other], data=rows).rows == 2


def evaluation(values: list[str], labels: str) -> Evaluation:
    task = Classify(labels=("a", "b"))
    records = [Record(number=place, texts=(f"t{place}",), label=label) for place, label in enumerate(labels)]
    predictions = [Prediction(value=value) for value in values]
    metrics = task.metrics(predictions, records)
    return Evaluation(task=task, records=records, predictions=predictions, metrics=metrics)


def test_several_pairs_are_corrected_by_holm() -> None:
    labels, names = "ab" * 20, ["one", "two", "three"]
    found = [evaluation([*said], labels) for said in (labels, "aa" * 20, "ab" * 10 + "aa" * 10)]
    compared = compare_evaluations(names, found)
    assert [(test.first, test.second) for test in compared.tests] == list(itertools.combinations(names, 2))
    one = compared.tests[0]
    assert one.right is not None and (one.right.only_first, one.right.only_second) == (20, 0)
    assert one.right.p_value == pytest.approx(2 / 2**20) and one.p_values[1] == pytest.approx(3 * 2 / 2**20)
    assert "Holm" in compared.method() and len(compared.pairs()) == 4
    assert compared.differing == [row for row in range(40) if row % 2]
    assert compare_evaluations(names, found) == compared  # a function of the rows
    right, wrong = compared.runs[:2]
    assert right.interval == pytest.approx(wilson_interval(40, 40)) and "Wilson" in compared.method()
    assert wrong.metrics["accuracy"] == 0.5 and wrong.interval[0] < 0.5 < wrong.interval[1]


def test_runs_are_compared_by_the_criterion_of_the_first() -> None:
    first, second = evaluation([*"aabb"], "abab"), evaluation([*"abaa"], "abab")
    weighted = dataclasses.replace(second, task=dataclasses.replace(second.task, class_weights="balanced"))
    assert weighted.task.criterion == "macro_f1"
    names = ["plain", "weighted"]
    assert compare_evaluations(names, [first, weighted]) == compare_evaluations(names, [first, second])
    assert compare_evaluations(names, [weighted, first]).criterion == "macro_f1"
    right = dataclasses.replace(weighted, predictions=[Prediction(value=value) for value in "abab"])
    right = dataclasses.replace(right, metrics=right.task.metrics(right.predictions, right.records))
    compared = compare_evaluations(names, [right, first])
    assert compared.runs[0].metrics["macro_f1"] == 1 and "Wilson" not in compared.method()  # it is no rate of rows


def test_numbers_have_no_mcnemar() -> None:
    task = Regress()
    records = [Record(number=place, texts=("t",), label=float(place)) for place in range(30)]
    runs = []
    for scale in (1.0, -1.0):
        predictions = [Prediction(value=scale * place + place % 3) for place in range(30)]
        metrics = task.metrics(predictions, records)
        runs.append(Evaluation(task=task, records=records, predictions=predictions, metrics=metrics))
    found = compare_evaluations(["up", "down"], runs)
    assert found.tests[0].right is None and found.tests[0].score.interval[0] > 1.5
    assert "p (McNemar)" not in found.pairs()[0] and "McNemar" not in found.method()


def test_runs_that_cannot_be_compared_are_refused(run: Path, table: Path, tmp_path: Path) -> None:
    with refusal("missing-value"):
        osbert.compare([run], data=table)
    with refusal("output-is-input", table):
        osbert.compare([run, run], data=table, out=table)
    with refusal("unknown-output-format", "page.csv"):
        osbert.compare([run, run], data=table, out=tmp_path / "page.csv")
    with refusal("output-is-folder", tmp_path):
        osbert.evaluate(run, data=table, out=tmp_path)
    with refusal("unknown-output-format", "page.pdf"):
        osbert.evaluate(run, data=table, out=tmp_path / "page.pdf")
    first = evaluation([*"aab"], "abb")
    fewer = dataclasses.replace(first, records=first.records[:2])
    others = dataclasses.replace(first, records=[dataclasses.replace(one, texts=("x",)) for one in first.records])
    numbers = dataclasses.replace(first, task=Regress(), metrics={"pearson": 0.5})
    for second in (fewer, others, numbers):
        with refusal("invalid-value", "two"):
            compare_evaluations(["one", "two"], [first, second])


def test_an_evaluation_has_a_page(run: Path, table: Path, tmp_path: Path) -> None:
    evaluate(run, data=table, out=tmp_path / "page.html")
    osbert.evaluate(run, data=table, out=tmp_path / "again.html")
    text = (tmp_path / "page.html").read_text()
    assert text == (tmp_path / "again.html").read_text()
    for heading in ("Scores", "By label", "By length", "Probabilities", "Wrong", "Least sure"):
        assert f"<h2>{heading}</h2>" in text
    assert "200 rows" in text and "95% interval" in text
