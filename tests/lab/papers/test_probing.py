"""osbert reproduce probing: the table of an analysis, the order of layers, and options that are of other tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from osbert_lab.analysis.figures import Figure
from osbert_lab.analysis.model_analysis import ModelAnalysis
from osbert_lab.papers import analysis_runs as analysed
from osbert_lab.papers import probing
from osbert_lab.papers.request import TableRequest
from osbert_lab.papers.scale import TableScale
from refusals import refusal


def figures(name: str, centre: float, accuracies: list[float]) -> list[Figure]:
    baselines = {"embeddings": accuracies[0], "control task": 0.1, "random encoder": 0.2}
    common: dict[str, Any] = {"n": 50, "unit": "words", "data": "trees", "seed": 0}
    found = [
        Figure(name=name, where={"layer": at}, value=value, baselines=baselines, **common)
        for at, value in enumerate(accuracies)
    ]
    return [
        *found,
        Figure(name=f"{name}_centre", value=centre, **common),
        Figure(name=f"{name}_expected_layer", value=3 - centre, **common),
    ]


def test_the_order_of_layers_is_beside_that_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"tags": figures("tags", 1.0, [0.5, 0.9, 0.8]), "arcs": figures("arcs", 2.0, [0.3, 0.4, 0.7]), "heads": []}
    found["structure"] = figures("tree_arcs", 2.0, [0.2, 0.6])

    def analyse(model: Path, *, out: Path, **_: object) -> ModelAnalysis:
        return ModelAnalysis(folder=out, figures=found, notes=["two trees of 9 read"])

    monkeypatch.setattr(analysed, "analyse", analyse)
    plan = TableRequest(name="probing", data=tmp_path, out=tmp_path / "out", model=tmp_path / "m", recipe="cpu").plan()
    plan.out.mkdir()
    plan.run()
    assert isinstance(plan, probing.ProbingPlan)
    lines = plan.text.splitlines()
    [row] = [line.split() for line in lines if line.startswith("relations")]
    assert row == ["relations", "30.0%", "70.0%", "2", "10.0%", "20.0%", "-", "2.00", "1.00", "50"]
    assert any(line.startswith("trees") and "60.0%" in line for line in lines)
    assert any("centre of gravity" in line and "is as in the paper" in line for line in lines)
    assert any("expected layer the order here is not as in the paper: relations, part" in line for line in lines)
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert written["tasks"]["part of speech"]["accuracy"] == [0.5, 0.9, 0.8]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "two trees of 9 read" in page and "part of speech from layer 1 (90.0%)" in page
    assert page.count("<figure") == page.count('<p class="soft">') == 1
    found.clear()
    with refusal("no-data", tmp_path):
        plan.run()


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"settings": ["--steps", "3"], "model": Path("m")}, "options-exclude-each-other"),
        ({"scale": TableScale(seeds=2), "model": Path("m")}, "options-exclude-each-other"),
        ({"corpus": Path("c"), "model": Path("m")}, "options-exclude-each-other"),
        ({}, "missing-option"),
    ],
)
def test_options_of_other_tables_are_refused_and_a_model_is_needed(given: dict[str, Any], code: str) -> None:
    with refusal(code, "--model"):
        TableRequest(name="probing", data=Path("d"), out=Path("o"), recipe="cpu", **given).plan()
