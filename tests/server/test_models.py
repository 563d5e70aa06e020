"""Runs by their names, as the command line gives them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from osbert.inference.engine import load
from osbert.inference.vectors.settings import EmbeddingOptions
from osbert.interop.sentence_files import LENGTHS, PROMPTS
from osbert.server.calls.models import ModelFolder, ServerModel, find, parse_models
from osbert.server.calls.schemas import Refusal
from osbert.server.wire import Orders
from osbert.server.worker import Worker
from refusals import refusal


def test_a_folder_with_an_equals_sign_is_no_name(tmp_path: Path) -> None:
    folder = tmp_path / "rate=3e-5"
    folder.mkdir()
    assert parse_models([str(folder), f"best={folder}"]) == [
        ModelFolder("rate=3e-5", folder),
        ModelFolder("best", folder),
    ]


def test_the_name_of_a_model_that_is_not_there_is_shortened() -> None:
    with pytest.raises(Refusal) as refused:
        find({}, "n" * 1_000_000, "embed", "embed")
    assert refused.value.status == 404 and refused.value.field == "model"
    assert refused.value.message.count("n" * 100) == 1 and len(refused.value.message) < 300


def test_vectors_without_a_name_are_an_encoders(runs: dict[str, Path]) -> None:
    """Every model embeds: a classifier does if no encoder is served, or by its name."""
    models = {name: ServerModel(name, load(runs[name])) for name in ("classifier", "pretrained", "sentences")}
    assert [find(models, name, "embed", "embed").name for name in (None, "classifier")] == ["sentences", "classifier"]
    del models["sentences"]
    assert find(models, None, "embed", "embed").name == "classifier"


def test_files_of_others_that_ask_for_what_there_is_not(runs: dict[str, Path], tmp_path: Path) -> None:
    """A pooling that there is not here is told when nothing else is asked for; a length that cannot be, at once."""
    folder = shutil.copytree(runs["sentences"], tmp_path / "sentences")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "sum"}')
    model = ServerModel("sentences", load(folder))
    with pytest.raises(Refusal) as caught:
        model.embedder(EmbeddingOptions())
    assert caught.value.status == 422 and caught.value.field == "pooling"
    assert all(word in caught.value.message for word in ("sum", "cls", "mean", "max", "weighted", "last"))
    assert model.embedder(EmbeddingOptions(pooling="mean")).settings.pooling == "mean"
    shutil.copytree(runs["sentences"], folder, dirs_exist_ok=True)
    (folder / LENGTHS).write_text(json.dumps({"max_seq_length": "long"}))
    with pytest.raises(Refusal) as caught:
        ServerModel("sentences", load(folder)).embedder(EmbeddingOptions())
    assert caught.value.status == 422 and "max_seq_length" in caught.value.message and "'long'" in caught.value.message
    (folder / LENGTHS).write_text(json.dumps({"max_seq_length": 3}))
    with refusal("invalid-value", "5", "12"):
        ServerModel("sentences", load(folder))


def test_sparse_vectors_are_refused(runs: dict[str, Path]) -> None:
    model = ServerModel("one", load(runs["pretrained"]))
    with pytest.raises(Refusal) as caught:
        model.embedder(EmbeddingOptions(pooling="splade"))
    assert caught.value.status == 422 and caught.value.field == "pooling" and "sparse" in caught.value.message


def test_prompts_that_a_request_has_to_name_are_a_remark(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(runs["sentences"], tmp_path / "sentences")
    for default, count in ((None, 1), ("query", 0)):
        (folder / PROMPTS).write_text(json.dumps({"prompts": {"query": "query: "}, "default_prompt_name": default}))
        remarks = Worker(Orders(runs=[ModelFolder("one", folder)], device="cpu")).ready().remarks
        assert len(remarks) == count and all("query: " in remark for remark in remarks)
    model = ServerModel("one", load(folder))
    with pytest.raises(Refusal) as caught:
        model.embedder(EmbeddingOptions(role="topic"))
    assert caught.value.status == 422 and caught.value.field == "role" and "document" in caught.value.message
