"""GLiNER's folders: scores and spans equal to those of the package, as make_gliner.py wrote them; refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
from osbert.inference.engine import Engine, load
from osbert.interop.files.weight_files import read_tensors, write_tensors
from osbert.runs.convert import ConversionSettings
from osbert.runs.convert import convert as run_conversion
from osbert_lab.named_spans.gliner import head_name, read_encoder_config
from refusals import refusal

STORED = Path(__file__).parent / "gliner"


def convert(source: Path, target: Path) -> None:
    run_conversion(source, target, settings=ConversionSettings(to="osbert"))


@pytest.fixture(scope="module", params=["bert", "deberta", "modernbert"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("gliner") / name
    convert(STORED / name, folder)
    return load(folder)


def test_scores_and_spans_are_those_of_the_package(name: str, model: Engine) -> None:
    expected: dict[str, Any] = json.loads((STORED / name / "expected.json").read_text())
    task = model.fine_tuned.for_labels([(label, "") for label in expected["labels"]])
    assert task is not None
    for row in expected["texts"]:
        record = task.record_of([row["text"]])
        [example] = task.encode(record, model.packer)
        assert example.ids.tolist() == row["ids"]
        [output] = model.backend.outputs(task, [example], tokens=4096)
        logits = np.array(row["logits"])  # (words, 4, 3)
        scores = output[example.words].reshape(logits.shape)
        for start, width in np.ndindex(*logits.shape[:2]):
            if start + width < len(logits):
                np.testing.assert_allclose(scores[start, width], logits[start, width], atol=1e-5, rtol=1e-5)
        for kind, several in (("flat", False), ("nested", True)):
            [prediction] = model.predict([row["text"]], labels=expected["labels"], multi=several)
            found = {one[:3]: one.probability for one in prediction.value}
            theirs = {(start, end, label): score for start, end, label, score in row[kind]}
            assert found == pytest.approx(theirs, abs=1e-5)


def test_a_run_without_types_asks_for_some(model: Engine) -> None:
    with refusal("missing-value", "labels") as raised:
        model.predict(["a film"])
    assert "--" not in str(raised.value)  # the server gives the same message


def test_fine_tuning_goes_on_with_a_published_head(model: Engine, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("a O\nfilm B-FILM\n\nthe O\nactor B-PER\n\n" * 6)
    run = osbert.finetune(
        "spans", model=model.folder, data=tmp_path / "data.txt", out=tmp_path / "run", epochs=1, learning_rate=1e-9
    )
    before, after = (one.learner.heads["spans"].state_dict() for one in (model, run.model))
    for weight in before:
        torch.testing.assert_close(after[weight], before[weight], atol=1e-5, rtol=0)
    assert run.model.fine_tuned.types == ("film", "person")  # type: ignore[attr-defined]


def test_what_osbert_lacks_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(STORED / "bert", folder)
    path = folder / "gliner_config.json"
    config = json.loads(path.read_text())

    def write(**changes: Any) -> None:
        path.write_text(json.dumps(config | changes))

    write(span_mode="token_level", num_rnn_layers=2, labels_encoder="bert", max_width=0)
    with refusal("unsupported-model", "span_mode", "num_rnn_layers", "labels_encoder", "max_width"):
        convert(folder, tmp_path / "run")
    write(encoder_config=None, model_name="some/bert")
    with refusal("unsupported-model", "encoder_config", "some/bert"):
        convert(folder, tmp_path / "run")
    write()
    tensors = read_tensors(folder)
    write_tensors({**tensors, "other.weight": torch.ones(2)}, folder / "model.safetensors")
    with refusal("not-convertible", "1 tensor"):
        convert(folder, tmp_path / "run")
    write_tensors(tensors, folder / "model.safetensors")
    (folder / "tokenizer.json").unlink()
    with refusal("missing-file", "tokenizer"):
        convert(folder, tmp_path / "run")


def test_early_folders_name_the_encoder_alone() -> None:
    tensors = {
        "embeddings.word_embeddings.weight": torch.empty(50, 128),
        **{f"encoder.layer.{layer}.intermediate.dense.weight": torch.empty(256, 128) for layer in range(3)},
    }
    encoder = read_encoder_config({"model_name": "microsoft/deberta-v3-base"}, tensors, where="config")
    sizes = [encoder[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")]
    assert sizes == [50, 128, 3, 2] and encoder["intermediate_size"] == 256
    assert head_name("token_rep_layer.projection.bias") == "heads.spans.project.bias"
    assert head_name("rnn.lstm.weight_ih_l0_reverse") == "heads.spans.recurrent.weight_ih_l0_reverse"
