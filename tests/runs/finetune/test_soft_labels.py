"""Fine-tuning on uncertain labels: probabilities are learnt in every way to train, and annotators are in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.errors import UserError
from osbert.training.tracking import read_lines
from tiny_runs import write_run

QUICK: dict[str, Any] = {"precision": "fp32", "device": "cpu", "temperature": 1.0, "dropout": 0.0}
STEPS: dict[str, Any] = {"epochs": 1, "batch": 16, "learning_rate": 1e-3, **QUICK}
TEXTS = {"the good film": 0.8, "the bad film": 0.1, "a poor play": 0.4}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder"), None, deviation=0.3)


def rows(pair: bool = False) -> list[dict[str, Any]]:
    texts = {"text_a": "an actor"} if pair else {}
    name = "text_b" if pair else "text"
    return [{**texts, name: text, "label": {"pos": p, "neg": 1 - p}} for text, p in TEXTS.items()] * 20


@pytest.mark.parametrize("targets", ["soft", "hard"])
def test_a_fitted_layer_has_the_probabilities_of_the_rows(encoder: Path, tmp_path: Path, targets: Any) -> None:
    settings = {"few_shot": "linear", "targets": targets, **QUICK}
    run = osbert.finetune("classify", model=encoder, data=rows(), dev=rows(), out=tmp_path / "run", **settings)
    predictions = [prediction.probabilities["pos"] for prediction in run.predict([*TEXTS])]
    expected = [*TEXTS.values()] if targets == "soft" else [1, 0, 0]
    assert predictions == pytest.approx(expected, abs=0.03)
    assert run.metrics["accuracy"] == 1  # with the likeliest label of each row


def test_the_accuracy_in_training_is_that_of_the_same_labels_without_probabilities(
    encoder: Path, tmp_path: Path
) -> None:
    names = ["pos", "neg", "none"]
    certain = [{"text": text, "label": name} for text, name in zip(TEXTS, names)] * 16
    soft = [{**row, "label": {row["label"]: 1.0}} for row in certain]
    curves, settings = [], {"few_shot": "none", "log_every": 1, **STEPS}
    for name, data in (("certain", certain), ("soft", soft)):
        osbert.finetune("classify", model=encoder, data=data, dev=certain, out=tmp_path / name, **settings)
        lines = read_lines(tmp_path / name / "metrics.jsonl")
        curves.append([line["classify.accuracy"] for line in lines if "classify.accuracy" in line])
    assert len(curves[0]) == 3 and max(curves[0]) > 1 / 3 and curves[1] == pytest.approx(curves[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"few_shot": "none"},
        {"few_shot": "linear-first"},
        {"few_shot": "contrastive"},
        {"few_shot": "none", "long": "window", "length": 5, "overlap": 1},
        {"few_shot": "linear", "apart": True},
        {"few_shot": "none", "apart": True},
        {"few_shot": "none", "both_orders": True},
    ],
)
def test_every_way_to_train_learns_from_probabilities(encoder: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    pair = "apart" in settings or "both_orders" in settings
    more = QUICK if settings["few_shot"] == "linear" else STEPS
    run = osbert.finetune(
        "classify", model=encoder, data=rows(pair), dev=rows(pair), out=tmp_path / "run", **settings, **more
    )
    assert run.model.fine_tuned.targets == "soft"
    text = ("an actor", "the good film") if pair else "the good film"
    assert sum(run.predict([text])[0].probabilities.values()) == pytest.approx(1)


@pytest.mark.lab
def test_the_report_has_the_annotators_and_a_change_of_probabilities_is_another_run(
    encoder: Path, tmp_path: Path
) -> None:
    voted = [{"text": f"{text} a", "first": "pos", "second": "neg" if p < 0.5 else "pos"} for text, p in TEXTS.items()]
    table = [{**row, "third": row["second"]} for row in voted] * 20
    notices: list[Any] = []
    settings = {"label": "first,second,third", "few_shot": "none", **STEPS}
    run = osbert.finetune("classify", model=encoder, data=table, out=tmp_path / "run", watch=notices.append, **settings)
    assert any("Krippendorff" in str(notice) for notice in notices)
    report = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "Krippendorff" in report and "pos for neg" in report
    again = [{**row, "third": "pos"} for row in table]
    with pytest.raises(UserError):
        osbert.finetune("classify", model=encoder, data=again, out=tmp_path / "run", **settings)
