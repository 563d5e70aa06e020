"""EuroBERT: configs of both kinds, its table of pieces, and what cannot be honoured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from safetensors.torch import load_file, save_file

from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.models import Padded
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.heads.predictions import SequenceHead
from refusals import refusal

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0),
}


def save(folder: Path, kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.EuroBertConfig(**SIZES | changes, num_labels=3)
    made = getattr(transformers, f"EuroBert{kind}")(config).eval()
    made.save_pretrained(folder)
    return made


def changed(folder: Path, *, without: tuple[str, ...] = (), **fields: Any) -> Path:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in config.items() if name not in without}))
    return folder


@pytest.mark.parametrize("pooling", ["bos", "mean", "late"])
def test_configs_of_both_kinds_are_read(pooling: str, tmp_path: Path) -> None:
    """The first releases call two fields otherwise; long texts, padded."""
    rope = {"rope_type": "default", "rope_theta": 250_000.0}
    made = save(tmp_path, "ForSequenceClassification", classifier_pooling=pooling, rope_parameters=rope)
    changed(tmp_path, without=("rope_parameters", "classifier_pooling"))
    folder = open_folder(changed(tmp_path, rope_theta=250_000, rope_scaling=None, clf_pooling=pooling))
    sizes = folder.architecture
    assert isinstance(sizes, Architecture) and (sizes.rotary_base, sizes.key_heads) == (250_000.0, 2)
    learner = Learner(folder.backbone, {"t": SequenceHead(folder.backbone, target="t", labels=3)}).eval()
    assert all(row.status == "loaded" for row in huggingface.fill_heads(folder.tensors, learner))
    ids, mask = torch.randint(5, 60, (2, 300)), torch.arange(300) < torch.tensor([300, 40])[:, None]
    with torch.no_grad():
        found = Padded(learner.backbone, learner.heads["t"])(ids, mask).scores
        expected = made(input_ids=ids, attention_mask=mask.long()).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


def test_a_folder_read_and_written_has_the_same_tensors(tmp_path: Path) -> None:
    save(tmp_path, "ForMaskedLM")
    folder = open_folder(tmp_path)
    assert [*folder.heads] == ["mlm"] and folder.report.problems == ()
    _, tensors = huggingface.to_huggingface(Learner(folder.backbone, folder.heads), pooler=folder.has_pooler)
    expected = load_file(tmp_path / "model.safetensors")
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in expected.items())


def test_weights_that_are_missing_or_left_over_are_named(tmp_path: Path) -> None:
    save(tmp_path, "ForMaskedLM")
    tensors = load_file(tmp_path / "model.safetensors")
    whole = tensors | {"model.layers.0.self_attn.q_norm.weight": torch.ones(4)}
    save_file(whole, tmp_path / "model.safetensors")
    assert [row.name for row in open_folder(tmp_path).report.problems] == ["layers.0.self_attn.q_norm.weight"]
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with refusal("damaged-file", "layers.1.mlp.up_proj.weight", "24"):
        _ = open_folder(tmp_path).backbone


def test_a_table_of_the_heads_own_is_not_taken_for_the_embeddings(tmp_path: Path) -> None:
    save(tmp_path, "ForMaskedLM")
    tensors = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" in tensors
    del tensors["model.embed_tokens.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with refusal("damaged-file", "embed_tokens.weight"):
        _ = open_folder(tmp_path).backbone


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"hidden_act": "mish"}, ["hidden_act", "'mish'"]),
        ({"attention_bias": True}, ["attention_bias", "True"]),
        ({"mlp_bias": True}, ["mlp_bias", "True"]),
        ({"pretraining_tp": 2}, ["pretraining_tp", "2"]),
        ({"hidden_dropout": 0.1}, ["hidden_dropout", "0.1"]),
        ({"head_dim": 8}, ["head_dim", "8"]),
        ({"num_key_value_heads": 3}, ["num_key_value_heads", "3", "4"]),
        ({"classifier_pooling": "last"}, ["classifier_pooling", "'last'", "late"]),
        ({"rope_scaling": {"factor": 2.0}}, ["rope_scaling", "2.0"]),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, ["rope_parameters", "llama3"]),
        ({"tie_word_embeddings": "no"}, ["tie_word_embeddings", "'no'"]),
        ({"is_decoder": True}, ["is_decoder", "True"]),
    ],
)
def test_other_mathematics_is_refused(fields: dict[str, Any], values: list[str], tmp_path: Path) -> None:
    save(tmp_path, "Model")
    with refusal("unsupported-model", *values):
        _ = open_folder(changed(tmp_path, **fields)).backbone
