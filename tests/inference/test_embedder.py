"""Vectors of a model that was trained for them: as sentence-transformers gives them, with no setting said."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
import three_ways
import tiny_runs
from osbert.inference.embedder import remarks, vector_settings
from osbert.inference.engine import Engine, load
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.interop.files.weight_files import write_tensors
from osbert.interop.hub import minilm
from osbert.interop.sentence_files import LENGTHS, MODULES, SentenceModel, write_sentence_model
from refusals import refusal

TEXTS = ("A charming and often affecting journey.", "Bad.", "word " * 300, "", "Das Café öffnet um 9 Uhr.")
SMALL = ("a good film", "bad", "the poor actor plays a bad film .", "fine")
OPEN = EmbeddingOptions()
WRITTEN_OUT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cls": lambda states: states[0],
    "mean": lambda states: states.sum(0) / len(states),
    "max": lambda states: states.max(0).values,
    "weighted": lambda states: torch.arange(1.0, len(states) + 1) @ states / sum(range(1, len(states) + 1)),
}
"""What each pooling is, of a text's states (n, D)."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return minilm()


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> tuple[Any, Any]:
    """Return the tokenizer and the model as transformers reads them."""
    from transformers import AutoModel, AutoTokenizer

    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


def sentences(source: Path, folder: Path, model: SentenceModel) -> Path:
    """Return a folder with the model in `source`, but as another model of sentences."""
    folder.mkdir()
    for path in source.iterdir():
        if path.is_file() and path.name not in (MODULES, LENGTHS):
            os.symlink(path, folder / path.name)
    write_sentence_model(folder, model, width=json.loads((source / "config.json").read_text())["hidden_size"])
    return folder


MODELS = [
    None,
    *(SentenceModel(pooling=pooling, normalize=False, length=128) for pooling in WRITTEN_OUT),  # type: ignore[arg-type]
    SentenceModel(pooling="cls", normalize=True, length=20),
    SentenceModel(pooling="max", normalize=True),
]
"""None is the published one: the mean, normalised, 256 tokens."""


@pytest.mark.parametrize("model", MODELS)
def test_they_are_the_states_of_transformers_pooled_as_the_model_was_trained_for(
    folder: Path, theirs: tuple[Any, Any], tmp_path: Path, model: SentenceModel | None
) -> None:
    path = sentences(folder, tmp_path / "model", model) if model else folder
    made = model or SentenceModel(pooling="mean", normalize=True, length=256)
    (tokenizer, reference), rows = theirs, []
    for text in TEXTS:
        inputs = tokenizer(text, truncation=True, max_length=made.length or 512, return_tensors="pt")
        with torch.no_grad():
            row = WRITTEN_OUT[made.pooling](reference(**inputs).last_hidden_state[0])
        rows.append(row / row.norm() if made.normalize else row)
    found = osbert.load(path).embed(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, torch.stack(rows).numpy(), atol=3e-6 if made.normalize else 3e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", MODELS)
def test_they_are_those_of_sentence_transformers(folder: Path, tmp_path: Path, model: SentenceModel | None) -> None:
    theirs = pytest.importorskip("sentence_transformers")
    path = sentences(folder, tmp_path / "model", model) if model else folder
    expected = theirs.SentenceTransformer(str(path), device="cpu").encode(list(TEXTS))
    np.testing.assert_allclose(osbert.load(path).embed(TEXTS), expected, atol=3e-5)


@pytest.mark.parametrize("kind", ["plain", *WRITTEN_OUT, "exported"])
def test_library_command_and_server_give_the_same(runs: dict[str, Path], tmp_path: Path, kind: Any) -> None:
    source = runs["encoder"]
    made = SentenceModel(pooling="cls" if kind == "exported" else kind, normalize=kind != "max", length=8)
    model = source if kind == "plain" else sentences(source, tmp_path / "model", made)
    if kind == "exported":
        model = tiny_runs.write_exported(tmp_path / "onnx", model)
    found = three_ways.vectors(model, [text for text in SMALL if len(text.split()) < 6], tmp_path / "made")
    np.testing.assert_allclose(found["command"], found["library"], atol=1e-6)
    np.testing.assert_allclose(found["server"], found["library"], atol=1e-6)
    if kind != "plain":
        raw = load(source).embed(["a good film"], pooling=made.pooling, length=8)
        expected = raw / np.linalg.norm(raw) if made.normalize else raw
        np.testing.assert_allclose(found["library"][:1], expected, atol=2e-5)


def test_options_are_those_of_the_command(runs: dict[str, Path]) -> None:
    engine = load(runs["sentences"])  # pooling weighted, length 1, 12 tokens
    raw, long = engine.embed(SMALL, normalize=False), ["film " * 30]
    np.testing.assert_allclose(engine.embed(SMALL), raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)
    assert np.abs(raw - engine.embed(SMALL, pooling="mean", normalize=False)).max() > 1e-3
    np.testing.assert_array_equal(engine.embed(long), engine.embed(["film " * 10]))
    np.testing.assert_array_equal(engine.embed(long, length=7), engine.embed(["film " * 5]))
    np.testing.assert_allclose(engine.embed(long, long="window"), engine.embed(long), atol=1e-6)  # all are alike
    with refusal("text-too-long", "1", "20", "12"):
        engine.embed(["film", *long], long="error")
    for options in ({"pooling": "men"}, {"long": "windows"}, {"length": 600}, {"layers": "lst"}):
        with refusal("invalid-value", next(iter(options))):
            engine.embed(SMALL, **options)
    with refusal("unknown-setting", "normalise", "normalize"):
        engine.embed(SMALL, normalise=True)
    for options in ({"normalize": "no"}, {"length": "12"}, {"length": 12.5}):
        with refusal("invalid-value", *options):
            engine.embed(SMALL, **options)
    np.testing.assert_array_equal(engine.embed(SMALL, length=np.int64(12), layers=np.int64(1)), engine.embed(SMALL))


def test_what_is_asked_for_goes_before_what_the_model_was_trained_for(engine: Engine) -> None:
    settings = vector_settings(OPEN, engine)
    assert (settings.pooling, settings.normalize, settings.length) == ("mean", True, 256)
    settings = vector_settings(EmbeddingOptions(pooling="cls", normalize=False, length=300), engine)
    assert (settings.pooling, settings.normalize, settings.length) == ("cls", False, 300)
    settings = vector_settings(EmbeddingOptions(pooling="tokens"), engine)
    assert (settings.pooling, settings.normalize, settings.length) == ("tokens", False, 512)
    assert remarks(EmbeddingOptions(pooling="tokens"), engine) == []
    assert len(remarks(OPEN, engine)) == 1 and "was trained for sentence vectors: pooling" in remarks(OPEN, engine)[0]


def modules_of(*kinds: str) -> str:
    """Return a modules.json with these parts of sentence-transformers."""
    paths = ("", "1_Pooling", *(f"{index}_{kind}" for index, kind in enumerate(kinds) if index > 1))
    return json.dumps(
        [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in zip(kinds, paths)]
    )


def test_damaged_and_foreign_files_beside_a_model(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(runs["encoder"], tmp_path, dirs_exist_ok=True)

    def opened() -> Engine:
        return load(tmp_path)

    assert "was not trained for sentence vectors" in remarks(OPEN, opened())[0]
    modules, pooling = tmp_path / "modules.json", tmp_path / "1_Pooling" / "config.json"
    pooling.parent.mkdir()
    dense = modules_of("Transformer", "Pooling", "Dense")
    for modules_say, pooling_says, refused in (
        ("[", "{}", ("wrong-format", "modules.json", "JSON")),
        ("{}", "{}", ("wrong-format", "modules.json")),
        (modules_of("Transformer"), "{}", ("unsupported-model", "modules.json", "Pooling")),
        (dense, '{"pooling_mode": ["mean", "sum"]}', ("unsupported-model", "mean", "sum")),
        (dense, "{}", ("missing-file", "2_Dense")),
        (dense.replace("Dense", "WordWeights"), "{}", ("unsupported-model", "WordWeights")),
        (modules_of("Router"), "{}", ("unsupported-model", "Router")),
        (dense.replace("models.Pooling", "models.CNN"), "{}", ("unsupported-model", "CNN")),
    ):
        modules.write_text(modules_say)
        pooling.write_text(pooling_says)
        with refusal(*refused):
            vector_settings(OPEN, opened())
        assert vector_settings(EmbeddingOptions(pooling="max"), opened()).pooling == "max"
    modules.write_text(modules_of("Transformer", "Pooling", "Dropout"))
    pooling.write_text('{"pooling_mode": "weightedmean"}')
    settings = vector_settings(OPEN, opened())
    assert settings.pooling == "weighted" and not settings.normalize


def test_a_dense_part_that_is_damaged_or_unknown_is_refused_by_name(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(runs["sentences"], tmp_path / "sentences")
    modules = json.loads((folder / MODULES).read_text())
    dense = folder / "3_Dense"
    dense.mkdir()
    (folder / MODULES).write_text(
        json.dumps([*modules, {"idx": 3, "path": "3_Dense", "type": "sentence_transformers.models.Dense"}])
    )
    sizes = {"in_features": 16, "out_features": 4, "activation_function": "torch.nn.modules.activation.Tanh"}
    weights = {"linear.weight": torch.ones(4, 16), "linear.bias": torch.ones(4)}
    write_tensors(weights, dense / "model.safetensors")
    for changes, refused in (
        ({"activation_function": "os.system"}, ("unsupported-model", "os.system", "Tanh")),
        ({"activation_function": "torch.nn.modules.activation.PReLU"}, ("unsupported-model", "PReLU")),
        ({"module_input_name": "token_embeddings"}, ("unsupported-model", "token_embeddings")),
        ({"bias": False}, ("damaged-file", "linear.bias")),
        ({"out_features": 5}, ("damaged-file", "(4, 16)")),
    ):
        (dense / "config.json").write_text(json.dumps(sizes | changes))
        with refusal(*refused):
            load(folder).embed(SMALL)
    (dense / "config.json").write_text(json.dumps(sizes))
    assert load(folder).embed(SMALL).shape == (4, 4)
    assert load(folder).embed(SMALL, pooling="mean").shape == (4, 16)
    assert any("Dense" in remark for remark in remarks(EmbeddingOptions(pooling="mean"), load(folder)))
    write_tensors({**weights, "linear.weight": torch.ones(4, 12)}, dense / "model.safetensors")
    (dense / "config.json").write_text(json.dumps(sizes | {"in_features": 12}))
    with refusal("damaged-file", "12", "16"):
        load(folder).embed(SMALL)


def test_the_tokenizers_bound_holds_where_no_length_is_given(runs: dict[str, Path], tmp_path: Path) -> None:
    """As newer sentence-transformers write it."""
    folder = shutil.copytree(runs["sentences"], tmp_path / "sentences")
    (folder / LENGTHS).write_text("{}")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    for bound, length in ((9, 9), (10**30, 12)):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": bound}))
        assert vector_settings(OPEN, load(folder)).length == length
