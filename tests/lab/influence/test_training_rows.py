"""The training rows behind a score: a pull is what a step of training does, and the nearest row is the text itself."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
from osbert.data.batch import collate
from osbert.evaluation.forward import outputs
from osbert.inference.engine import load
from osbert_lab.influence import training_rows as module
from osbert_lab.influence.influence import Influence
from refusals import refusal

ROWS = [
    {"text": text, "label": label}
    for text, label in (
        ("the good film", "pos"),
        ("a bad film", "neg"),
        ("a fine film", "pos"),
        ("the poor film", "neg"),
    )
]


@pytest.mark.parametrize("name", ["classifier", "number", "chooser"])
def test_a_pull_is_what_a_step_of_the_last_layer_does_to_the_score(runs: dict[str, Path], name: str) -> None:
    texts = {"classifier": ["the good film"], "number": ["a film"], "chooser": ["a good", "film", "play"]}[name]
    label: Any = {"classifier": "neg", "number": 2.5, "chooser": "2"}[name]
    engine = load(runs[name])
    task, learner, step = engine.fine_tuned, engine.learner, 1e-3
    record = task.record_of(texts)
    examples = task.encode(record, engine.packer)
    (prediction,) = engine.predict_records([record])
    (score,) = task.explain(prediction, record, examples, "")
    other = task.record_of([text.replace("good", "bad") for text in texts])
    batch = collate(task.encode(type(other)(**{**vars(other), "label": label}), engine.packer))
    found = Influence(learner, task.name, examples, [score.weights]).of(batch)[0]
    moved = copy.deepcopy(learner)
    layer: Any = moved.heads[task.name].linear  # type: ignore[assignment]
    moved(batch)[task.name].total.backward()
    with torch.no_grad():
        for weight in (layer.weight, layer.bias):
            weight -= step * weight.grad
    before, after = (score.of(outputs(one, task.name, examples)) for one in (learner, moved))
    np.testing.assert_allclose((after - before) / step, found.pulls[0], rtol=2e-2, atol=1e-3)


def test_the_nearest_row_is_the_text_itself_and_windows_change_nothing(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = osbert.training_rows(runs["classifier"], "the good film", rows=ROWS, count=2)
    assert found.rows == 4 and found.nearest[0].texts == ("the good film",)
    assert found.nearest[0].cosine == pytest.approx(1, abs=1e-5)
    assert all(row.pull > 0 for row in found.towards) and all(row.pull < 0 for row in found.against)
    monkeypatch.setattr(module, "WINDOW", 1)
    (again,) = osbert.training_rows(runs["classifier"], "the good film", rows=ROWS, count=2)
    assert [row.texts for row in again.nearest] == [row.texts for row in found.nearest]
    assert again.towards[0].pull == pytest.approx(found.towards[0].pull, rel=1e-4)


def test_equal_rows_stand_in_the_order_of_the_file(runs: dict[str, Path]) -> None:
    (found,) = osbert.training_rows(runs["classifier"], "the good film", rows=ROWS * 40, count=80)
    order = [(-row.cosine, int(row.place.split()[-1])) for row in found.nearest]
    assert len({cosine for cosine, _ in order}) < 80 and order == sorted(order)


def test_what_cannot_be_compared_is_refused(runs: dict[str, Path]) -> None:
    with refusal("unsupported-model"):
        osbert.training_rows(runs["tagger"], "good film", rows=ROWS)
    with refusal("unknown-label", "so-so"):
        osbert.training_rows(runs["classifier"], "good film", rows=[*ROWS, {"text": "a film", "label": "so-so"}])
    with refusal("invalid-value"):
        osbert.training_rows(runs["classifier"], "good film", rows=ROWS, count=0)


def test_the_command_shows_them(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from osbert.cli import main

    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)))
    main(["explain", str(runs["classifier"]), "the good film", "--rows", str(file), "--count", "1", "--points", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert "  nearest" in lines and any("the good film" in line and "train.jsonl" in line for line in lines)
