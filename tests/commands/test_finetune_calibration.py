"""Probabilities after fine-tuning: a temperature from the development rows, kept, used, published and told."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from osbert import recipe
from osbert.commands.evaluate import evaluate
from osbert.commands.finetune import finetune
from osbert.data.pack import Packer
from osbert.evaluation.score import predict
from osbert.inference.engine import load
from osbert.tasks import load as load_records
from osbert.tasks.calibration import apply_temperature, calibrate, columns
from osbert.tasks.kinds.classify import Classify
from refusals import refusal


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory,
    encoder: Path,
    reviews: Callable[[int], list[tuple[str, str]]],
    settings: Sequence[str],
) -> Path:
    """Return a run whose development rows have one label in five wrong, so that it is surer than it should be."""
    data = tmp_path_factory.mktemp("noisy")
    turned = {"pos": "neg", "neg": "pos"}
    rows = [(text, turned[label] if n % 5 == 0 else label) for n, (text, label) in enumerate(reviews(800))]
    for name, part in (("train", reviews(200)), ("dev", rows[200:])):
        lines = "\n".join(f"{text},{label}" for text, label in part)
        (data / f"{name}.csv").write_text(f"text,label\n{lines}\n")
    out = data / "run"
    finetune("classify", *settings, "--epochs", "9", model=encoder, data=data, out=out)
    return out


def test_the_temperature_is_kept_and_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = recipe.read(folder / "recipe.toml")["classify"]["temperature"]
    found = json.loads((folder / "run.json").read_text())["finished"]["calibration"]
    assert found["temperature"] == kept > 1.2 and found["rows"] == 600
    assert found["error_after"] < found["error_before"]
    engine = load(folder)
    task, by_split = load_records(engine.fine_tuned, ("dev",), fit=False)
    plain = predict(engine.learner, type(task)(labels=task.labels, temperature=1), by_split["dev"], engine.packer)
    shares, labels = columns(plain, by_split["dev"]) or (np.empty(0), np.empty(0))
    again = calibrate(shares, labels)
    assert again is not None and again.temperature == pytest.approx(kept, rel=1e-3)
    used, _ = columns(engine.predict_records(by_split["dev"]), by_split["dev"]) or (np.empty(0), np.empty(0))
    np.testing.assert_allclose(used, apply_temperature(shares, kept), atol=1e-6)
    page = (folder / "report.html").read_text()
    assert "expected calibration error" in page and "measured on the other, both ways" in page
    evaluate(folder, data=folder.parent, split="dev")
    assert "expected calibration error of the probabilities: 0." in capsys.readouterr().out


def test_others_see_the_same_probabilities(folder: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    texts = ["the good film", "a bad film plays"]
    for text, ours in zip(texts, load(folder).predict(texts)):
        with torch.no_grad():
            shares = model.eval()(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].numpy()
        np.testing.assert_allclose(shares, list(ours.probabilities.values()), atol=2e-5)


def test_the_temperature_is_fitted_once_a_best_epoch(
    encoder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[int] = []
    seam = "osbert.tasks.tables.classes.calibrate"
    monkeypatch.setattr(seam, lambda *given: fitted.append(1) or calibrate(*given))
    finetune("classify", "--epochs", "1", "--held-out", "0.3", model=encoder, data=table, out=tmp_path / "run")
    assert fitted == [1] and "calibration" in json.loads((tmp_path / "run" / "run.json").read_text())["finished"]


def test_a_temperature_that_is_given_stays(encoder: Path, table: Path, tmp_path: Path) -> None:
    few = ("--epochs", "1", "--precision", "fp32")
    finetune("classify", *few, "--temperature", "3", model=encoder, data=table, out=tmp_path / "run")
    assert recipe.read(tmp_path / "run" / "recipe.toml")["classify"]["temperature"] == 3
    assert "calibration" not in json.loads((tmp_path / "run" / "run.json").read_text())["finished"]
    engine = load(tmp_path / "run")
    hot = engine.predict(["good film"])[0].probabilities["pos"]
    task = Classify(labels=("neg", "pos"), temperature=1)
    record = task.record_of(["good film"])
    packer = Packer(tokenizer=engine.tokenizer, length=24)
    plain = predict(engine.learner, task, [record], packer)[0].probabilities["pos"]
    assert hot == pytest.approx(1 / (1 + ((1 - plain) / plain) ** (1 / 3)), abs=1e-6)
    with refusal("invalid-setting", "0"):
        finetune("classify", "--temperature", "-1", model=encoder, data=table, out=tmp_path / "other")
