"""Hugging Face folders that cannot be opened, or not whole: every defect is told in clear words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import SequenceHead
from refusals import refusal


@pytest.fixture
def folder(tmp_path: Path, make_learner: Callable[..., Learner]) -> Path:
    huggingface.write_model(make_learner(["mlm", "nsp"]), tmp_path)
    return tmp_path


def change_config(folder: Path, **fields: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"model_type": "llama"}, ("unsupported-model", "model_type", "llama", "albert", "roberta", "osbert")),
        ({"position_embedding_type": "relative_key"}, ("unsupported-model", "position_embedding_type", "relative_key")),
        ({"add_cross_attention": True}, ("unsupported-model", "add_cross_attention", "True")),
        ({"hidden_act": "geluu"}, ("unsupported-model", "hidden_act", "geluu", "'gelu'")),
        ({"pruned_heads": {"0": [1]}}, ("unsupported-model", "pruned_heads")),
        ({"quantization_config": {"bits": 8}}, ("unsupported-model", "quantization_config")),
        ({"model_type": "roformer", "rotary_value": True}, ("unsupported-model", "rotary_value", "True")),
        (
            {"embedding_size": 8},
            ("unsupported-model", "embedding_size", "8", "hidden_size", "16"),
        ),
        ({"hidden_size": None}, ("unsupported-model", "hidden_size", "None")),
        ({"layer_norm_eps": "small"}, ("unsupported-model", "layer_norm_eps", "small")),
        ({"num_attention_heads": 3}, ("unsupported-model", "16", "3")),
        (
            {"add_cross_attention": True, "hidden_act": "mish"},
            ("unsupported-model", "add_cross_attention", "hidden_act", "mish"),
        ),
        ({"hidden_act": ["gelu"]}, ("unsupported-model", "hidden_act", "['gelu']")),
        ({"model_type": ["bert"]}, ("unsupported-model", "model_type", "['bert']")),
        ({"model_type": None}, ("unsupported-model", "model_type", "None")),
        ({"type_vocab_size": None}, ("unsupported-model", "type_vocab_size", "None")),
        ({"type_vocab_size": "2"}, ("unsupported-model", "type_vocab_size", "'2'")),
        (
            {"type_vocab_size": "2", "hidden_size": True},
            ("unsupported-model", "hidden_size", "True", "type_vocab_size", "'2'"),
        ),
        ({"osbert_adapters": 1.5}, ("unsupported-model", "osbert_adapters", "1.5")),
        ({"vocab_size": 10**30}, ("unsupported-model", "vocab_size", "1000")),
        ({"hidden_size": 2**30}, ("damaged-file",)),
        ({"layer_norm_eps": float("inf")}, ("unsupported-model", "layer_norm_eps", "inf")),
        ({"model_type": "roberta", "pad_token_id": "1"}, ("unsupported-model", "pad_token_id", "'1'")),
        (
            {"model_type": "osbert", "osbert_positions": []},
            ("unsupported-model", "osbert_positions", "[]", "osbert_biases", "'missing'"),
        ),
        ({"model_type": "osbert", "osbert_pooling": ["x"]}, ("unsupported-model", "osbert_pooling", "['x']")),
        ({"model_type": "osbert", "osbert_embedding": "x"}, ("unsupported-model", "osbert_embedding", "'x'")),
    ],
)
def test_a_config_that_asks_for_other_mathematics_is_refused(
    folder: Path, fields: dict[str, object], refused: tuple[str, ...]
) -> None:
    change_config(folder, **fields)
    with refusal(*refused):
        _ = open_folder(folder).backbone


def test_a_config_of_the_first_releases_is_bert(folder: Path, ours: Architecture) -> None:
    config = json.loads((folder / "config.json").read_text())
    for field in ("model_type", "layer_norm_eps", "architectures", "position_embedding_type"):
        del config[field]
    (folder / "config.json").write_text(json.dumps(config))
    assert open_folder(folder).backbone.architecture == ours


def test_missing_and_misshapen_weights_are_listed_together(folder: Path) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["bert.encoder.layer.1.attention.self.key.weight"]
        tensors["bert.embeddings.word_embeddings.weight"] = torch.zeros(59, 16)
        tensors["bert.encoder.layer.0.output.dense.bias"] = torch.zeros(16, dtype=torch.int8)

    change_tensors(folder, spoil)
    missing, misshapen = "encoder.layer.1.attention.self.key.weight (16, 16)", "word_embeddings.weight"
    with refusal("damaged-file", missing, misshapen, "(59, 16)", "(60, 16)", "output.dense.bias", "torch.int8"):
        _ = open_folder(folder).backbone


def test_the_report_tells_the_expected_from_the_strange(folder: Path) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["bert.pooler.dense.weight"], tensors["bert.pooler.dense.bias"]
        tensors["bert.encoder.layer.0.adapter.weight"] = torch.zeros(2)
        tensors["cls.predictions.decoder.weight"] = torch.zeros(60, 16)
        tensors["bert.embeddings.position_ids"] = torch.arange(24)

    change_tensors(folder, spoil)
    torch.manual_seed(0)
    loaded = open_folder(folder)
    rows = {row.name: row for row in loaded.report.rows}
    assert rows["encoder.layer.0.attention.self.query.weight"].status == "loaded"
    assert rows["pooler.dense.weight"].status == "new" and rows["pooler.dense.weight"].expected
    assert rows["embeddings.position_ids"].status == "unused" and rows["embeddings.position_ids"].expected
    assert rows["cls.seq_relationship.weight"].status == "unused" and rows["cls.seq_relationship.weight"].expected
    assert {row.name for row in loaded.report.problems} == {
        "encoder.layer.0.adapter.weight",
        "cls.predictions.decoder.weight",
    }
    assert loaded.backbone.pooler.weight.std().item() == pytest.approx(0.3 * 0.88, rel=0.15)
    with refusal("damaged-file", "pooler.dense.weight", "16"):
        loaded.report.require_complete("folder")


def test_a_head_with_other_labels_starts_afresh(tmp_path: Path, make_learner: Callable[..., Learner]) -> None:
    huggingface.write_model(make_learner(["classify"]), tmp_path)
    backbone = open_folder(tmp_path).backbone
    learner = Learner(backbone, {"pair": SequenceHead(backbone, target="pair", labels=2)})
    before = learner.heads["pair"].linear.weight.clone()
    report = open_folder(tmp_path).fill(learner)
    assert report.select_names("new") == ("classifier.weight", "classifier.bias") and report.problems == ()
    assert torch.equal(before, learner.heads["pair"].linear.weight)
    with refusal("damaged-file", "3", "16", "2"):
        report.require_complete("folder")


def test_a_second_classifier_keeps_its_own_weights(tmp_path: Path, ours: Architecture) -> None:
    def learner() -> Learner:
        backbone = ours.build()
        heads = {name: SequenceHead(backbone, target=name, labels=2) for name in ("sst2", "rte")}
        return Learner(backbone, heads)

    torch.manual_seed(0)
    first, second = learner(), learner()
    huggingface.write_model(first, tmp_path)
    open_folder(tmp_path).fill(second).require_complete("folder")
    for name in ("sst2", "rte"):
        assert torch.equal(first.heads[name].linear.weight, second.heads[name].linear.weight)
    assert not torch.equal(second.heads["sst2"].linear.weight, second.heads["rte"].linear.weight)


@pytest.mark.parametrize("kept", [0, 4, 100, 5000, -1])
def test_a_file_cut_short_is_called_that(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with refusal("damaged-file", path):
        _ = open_folder(folder).backbone


def test_other_damage_is_told(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with refusal("not-a-model", "model.safetensors", "pytorch_model.bin"):
        _ = open_folder(folder).backbone
    (folder / "tf_model.h5").touch()
    with refusal("not-a-model", "tf_model.h5"):
        _ = open_folder(folder).backbone
    (folder / "pytorch_model.bin").write_bytes(b"no weights")
    with refusal("damaged-file"):
        _ = open_folder(folder).backbone
    torch.save({"model": Path("x")}, folder / "pytorch_model.bin")
    with refusal("damaged-file"):
        _ = open_folder(folder).backbone
    torch.save({"model": {}}, folder / "pytorch_model.bin")
    with refusal("damaged-file"):
        _ = open_folder(folder).backbone
    (folder / "config.json").write_text("[]")
    with refusal("wrong-format"):
        _ = open_folder(folder).backbone
    (folder / "config.json").write_text("{")
    with refusal("wrong-format"):
        _ = open_folder(folder).backbone
    with refusal("missing-file"):
        _ = open_folder(folder / "nowhere").backbone


def test_a_missing_shard_is_named(pretraining, tmp_path: Path) -> None:
    pretraining.save_pretrained(tmp_path, max_shard_size="10KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    with refusal("missing-file", shard.name):
        _ = open_folder(tmp_path).backbone


def test_writing_replaces_whole_files_and_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, make_learner: Callable[..., Learner]
) -> None:
    before = (folder / "model.safetensors").read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("osbert.files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        huggingface.write_model(make_learner([]), folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_a_folder_without_a_model_is_told_from_that_of_a_run_that_has_not_ended(tmp_path: Path) -> None:
    with refusal("not-a-model", "config.json"):
        _ = open_folder(tmp_path).backbone
    (tmp_path / "run.json").write_text('{"settings": {}}')
    with refusal("unfinished-run"):
        _ = open_folder(tmp_path).backbone
