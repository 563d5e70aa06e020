"""osbert reproduce attention: tables of layers, relations beside the published ones, and what is said of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import terminal
from osbert_lab.analysis.figures import Figure
from osbert_lab.papers import attention

COMMON: dict[str, Any] = {"n": 50, "unit": "texts", "data": "texts", "seed": 0}


def entropies(*values: float) -> list[Figure]:
    return [
        Figure(name=name, where=where, value=value, baselines={"uniform": 3.0}, **COMMON)
        for layer, value in enumerate(values, 1)
        for name, where in (("layer_entropy", {"layer": layer}), ("entropy", {"layer": layer, "head": 1}))
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((2.0, 1.0, 1.5), "falls from 2.00 nats in layer 1 to 1.00 nats in layer 2, and rises to 1.50 in layer 3"),
        ((2.0, 1.5, 1.0), "lowest at an end, 1.00 nats in layer 3"),
        ((1.0,), "lowest at an end, 1.00 nats in layer 1"),
    ],
)
def test_the_fall_and_the_rise_of_the_entropy_are_said_where_they_are(values: tuple[float, ...], said: str) -> None:
    [sentence] = attention.entropy_sentences(entropies(*values))
    assert said in sentence
    assert [row[1] for row in attention.entropy_rows(entropies(*values))] == [f"{value:.2f}" for value in values]


def test_a_relation_stands_beside_the_published_one_and_others_are_left_out() -> None:
    def relation(name: str) -> Figure:
        where: dict[str, int | str] = {
            "relation": name, "layer": 3, "head": 4, "direction": "dependent to head", "offset": -2,
        }  # fmt: skip
        baselines = {"offset": 0.3, "on the trees it was chosen on": 0.7, "random encoder": 0.1}
        return Figure(name="relation", where=where, value=0.6, interval=(0.5, 0.7), baselines=baselines, **COMMON)

    [row] = attention.relation_rows([relation("root"), relation("obj")])
    assert row == [
        "obj", "50", "3-4", "60.0", "50.0 to 70.0", "70.0", "-2: 30.0", "10.0", "dobj", "8-10", "86.8", "-2: 40.0",
    ]  # fmt: skip


def test_a_model_is_measured_and_the_tables_are_written(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    rows = [
        "1\tthe\t_\tX\t_\t_\t2\tdet\t_\t_",
        "2\tfilm\t_\tX\t_\t_\t0\troot\t_\t_",
        "3\tplays\t_\tX\t_\t_\t2\tobj\t_\t_",
    ]
    for name in ("train", "dev"):
        (data / f"{name}.conllu").write_text("\n".join([*rows, "", ""]) * 12)
    text = "the good film .\n\n" * 9 + "a bad film , the fine play .\n\n" * 9
    (data / "text.txt").write_text(text)
    out = tmp_path / "out"
    assert terminal.run("reproduce", "attention", "--model", runs["encoder"], "--data", data, "--out", out) == 0
    text, printed = (out / "table.txt").read_text(), capsys.readouterr().out
    assert text in printed and re.search(r"^\d+ of 234 tokens$", printed, re.MULTILINE)
    assert all(heading in text for heading in ("Entropy of attention", "Parts of attention", "against relations"))
    assert "Heads against coreference" not in text
    [row] = [line.split() for line in text.splitlines() if "94.3" in line]
    assert row[:2] == ["det", "12"] and "+1: 100.0" in text and row[-5:] == ["det", "8-11", "94.3", "+1:", "51.7"]
    written = json.loads((out / "results.json").read_text())
    assert written["published"]["obj"]["right"] == 86.8 and "head" not in written["heads"][0]["where"]
    assert (out / "report.html").read_text().count("<figure") > 5
