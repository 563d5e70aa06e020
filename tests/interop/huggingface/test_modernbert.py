"""ModernBERT: its configs of both kinds, its tensors to the byte, what cannot be honoured, and long sequences."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from safetensors.torch import load_file, save_file

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.models.heads.tagging import TagHead
from refusals import refusal

SIZES = {
    "vocab_size": 60,
    "initializer_range": 0.3,
    "hidden_size": 16,
    "num_hidden_layers": 7,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 512,
    "local_attention": 32,
    "pad_token_id": 0,
    "classifier_pooling": "mean",
}
HEADS = {
    "ForSequenceClassification": lambda backbone: SequenceHead(backbone, target="t", labels=3),
    "ForTokenClassification": lambda backbone: TagHead(backbone, target="t", labels=3),
    "ForMaskedLM": lambda backbone: MaskedLanguageHead(backbone),
}


def theirs(folder: Path, kind: str = "Model", **changes: Any) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, f"ModernBert{kind}")(
        transformers.ModernBertConfig(**SIZES | changes, num_labels=3)
    ).eval()
    for parameter in made.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.1)
    made.save_pretrained(folder)
    return made


def changed(folder: Path, *, without: tuple[str, ...] = (), **fields: Any) -> Path:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in config.items() if name not in without}))
    return folder


def batch_of(*lengths: int) -> Batch:
    rng = np.random.default_rng(0)
    none = [np.zeros(length, np.bool_) for length in lengths]
    return collate(
        [
            Example(
                ids=rng.integers(5, 60, size=length),
                segments=np.zeros(length, np.int8),
                words=no,
                special=no,
                record=place,
            )
            for place, (length, no) in enumerate(zip(lengths, none))
        ]
    )


def test_states_are_theirs_far_beyond_the_window(tmp_path: Path) -> None:
    made, batch = theirs(tmp_path), batch_of(300, 70, 20)
    backbone = open_folder(tmp_path).backbone.eval()
    with torch.no_grad():
        expected = torch.cat([made(ids[None]).last_hidden_state[0] for ids in batch.ids.split(batch.lengths)])
        torch.testing.assert_close(backbone(batch).hidden, expected, rtol=0, atol=2e-5)


OLD = {"global_rope_theta": 5000.0, "local_rope_theta": 300.0, "global_attn_every_n_layers": 2}
NEW = {
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
    },
    "layer_types": [("sliding" if layer % 2 else "full") + "_attention" for layer in range(7)],
}


@pytest.mark.parametrize("fields", [OLD, NEW], ids=["old", "new"])
def test_configs_of_both_kinds_are_read(fields: dict[str, Any], tmp_path: Path) -> None:
    made = theirs(tmp_path, **NEW)
    changed(tmp_path, without=("rope_parameters", "layer_types"))
    backbone = open_folder(changed(tmp_path, **fields)).backbone.eval()
    sizes = backbone.architecture
    assert isinstance(sizes, Architecture)
    assert (sizes.window, sizes.global_every, sizes.rotary_base, sizes.local_base) == (16, 2, 5000.0, 300.0)
    batch = batch_of(60)
    with torch.no_grad():
        expected = made(batch.ids[None]).last_hidden_state[0]
        torch.testing.assert_close(backbone(batch).hidden, expected, rtol=0, atol=2e-5)


def test_layers_that_are_all_global_are_read_and_written(tmp_path: Path) -> None:
    theirs(tmp_path, layer_types=["full_attention"] * 7)
    backbone = open_folder(tmp_path).backbone
    assert backbone.architecture.window == 0
    huggingface.write_model(Learner(backbone, {}), tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["layer_types"] == ["full_attention"] * 7
    assert open_folder(tmp_path / "ours").backbone.architecture == backbone.architecture


@pytest.mark.parametrize("kind", HEADS)
def test_a_folder_read_and_written_has_the_same_tensors(kind: str, tmp_path: Path) -> None:
    theirs(tmp_path / "theirs", kind)
    folder = open_folder(tmp_path / "theirs")
    learner = Learner(folder.backbone, {"t": HEADS[kind](folder.backbone)})
    huggingface.fill_heads(folder.tensors, learner)
    _, tensors = huggingface.to_huggingface(learner, pooler=folder.has_pooler)
    expected = load_file(tmp_path / "theirs" / "model.safetensors")
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensors[name], tensor), name


def test_a_class_that_is_not_named_is_known_by_its_tensors(tmp_path: Path) -> None:
    theirs(tmp_path, "ForMaskedLM")
    folder = open_folder(changed(tmp_path, without=("architectures",)))
    assert "mlm" in folder.heads
    assert not folder.has_pooler


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"hidden_activation": "mish", "classifier_activation": "mish"}, ["hidden_activation", "mish"]),
        ({"classifier_activation": "relu"}, ["classifier_activation", "relu", "hidden_activation"]),
        ({"embedding_dropout": 0.2}, ["embedding_dropout", "0.2", "mlp_dropout"]),
        ({"classifier_pooling": "max"}, ["classifier_pooling", "max"]),
        ({"mlp_bias": True}, ["mlp_bias", "True"]),
        ({"norm_bias": 1}, ["norm_bias", "1"]),
        ({"decoder_bias": False}, ["decoder_bias", "False"]),
        ({"tie_word_embeddings": False}, ["tie_word_embeddings", "False"]),
        ({"local_attention": 1}, ["local_attention", "1"]),
        ({"layer_types": ["sliding_attention"] * 7}, ["layer_types", "sliding_attention"]),
        ({"layer_types": ["full_attention"]}, ["layer_types", "7"]),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, ["rope_scaling", "linear"]),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}},
            ["rope_parameters", "global_rope_theta", "yarn"],
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, ["rope_parameters", "sliding_attention"]),
        ({"rope_parameters": None, "global_rope_theta": "many"}, ["global_rope_theta", "many"]),
        ({"global_attn_every_n_layers": 0}, ["global_attn_every_n_layers", "0"]),
        ({"is_decoder": True}, ["is_decoder", "True"]),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_by_its_field(
    fields: dict[str, Any], values: list[str], tmp_path: Path
) -> None:
    theirs(tmp_path)
    with refusal("unsupported-model", *values):
        _ = open_folder(changed(tmp_path, **fields)).architecture


def test_missing_and_spare_weights_are_named_as_in_the_file(tmp_path: Path) -> None:
    theirs(tmp_path, "ForMaskedLM")
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.2.attn.Wqkv.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with refusal("damaged-file", "layers.2.attn.Wqkv.weight"):
        _ = open_folder(tmp_path).backbone
    tensors["model.layers.2.attn.Wqkv.weight"] = torch.zeros(48, 16)
    tensors["model.layers.2.attn.conv.weight"] = torch.zeros(3)
    save_file(tensors, tmp_path / "model.safetensors")
    (row,) = open_folder(tmp_path).report.problems
    assert row.name.endswith("attn.conv.weight")


def test_heads_that_would_share_names_do_not(tmp_path: Path) -> None:
    """Their class for masked pieces and that for texts have both a "head": only one of ours can be it."""
    theirs(tmp_path)
    backbone = open_folder(tmp_path).backbone
    heads = {"mlm": MaskedLanguageHead(backbone), "t": SequenceHead(backbone, target="t", labels=3)}
    huggingface.write_model(Learner(backbone, heads), tmp_path / "ours")
    again = open_folder(tmp_path / "ours")
    fresh = {"mlm": MaskedLanguageHead(again.backbone), "t": SequenceHead(again.backbone, target="t", labels=3)}
    learner = Learner(again.backbone, fresh)
    assert all(row.status == "loaded" for row in huggingface.fill_heads(again.tensors, learner))
    assert torch.equal(fresh["t"].linear.weight, heads["t"].linear.weight)
    assert torch.equal(fresh["mlm"].dense.weight, heads["mlm"].dense.weight)
    assert again.backbone.architecture == replace(backbone.architecture)
