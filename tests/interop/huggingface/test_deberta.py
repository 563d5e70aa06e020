"""DeBERTa: the published names of its third version, and what of a config cannot be honoured.

Its states, scores and folders are in test_families.py, its mathematics in models/transformer/test_disentangled.py.
"""

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

from osbert.data.batch import Batch
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from refusals import refusal

V3 = {
    "vocab_size": 60,
    "initializer_range": 0.3,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "intermediate_size": 40,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "relative_attention": True,
    "share_att_key": True,
    "position_biased_input": False,
    "position_buckets": 8,
    "pos_att_type": "p2c|c2p",
    "norm_rel_ebd": "layer_norm",
}


def save_theirs(folder: Path, kind: str = "Model", **changes: Any) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, f"DebertaV2{kind}")(transformers.DebertaV2Config(**V3 | changes)).eval()
    made.save_pretrained(folder)
    return made


def test_queries_in_half_precision_are_scaled_in_single_precision(tmp_path: Path) -> None:
    save_theirs(tmp_path, pos_att_type="c2p")
    stored = load_file(tmp_path / "model.safetensors")
    save_file(
        {name: tensor.half() for name, tensor in stored.items()}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    half = open_folder(tmp_path).backbone.state_dict()
    save_file({name: tensor.half().float() for name, tensor in stored.items()}, tmp_path / "model.safetensors")
    single = open_folder(tmp_path).backbone.state_dict()
    assert all(torch.equal(half[name], single[name]) for name in single if "pooler" not in name)


def test_a_discriminator_is_read_with_its_language_head_and_the_rest_is_named(tmp_path: Path) -> None:
    """The published names: a masked-LM head that is not "legacy", and one for replaced tokens."""
    made = save_theirs(tmp_path, "ForMaskedLM", legacy=False)
    torch.nn.init.normal_(made.lm_predictions.lm_head.bias)
    made.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert "lm_predictions.lm_head.dense.weight" in tensors
    replaced = [f"mask_predictions.{name}.bias" for name in ("dense", "LayerNorm", "classifier")]
    left = dict.fromkeys([*replaced, "deberta.embeddings.position_embeddings.weight"], torch.ones(16))
    save_file(tensors | {name: tensor.clone() for name, tensor in left.items()}, tmp_path / "model.safetensors")
    folder = open_folder(tmp_path)
    unused = {row.name: row.expected for row in folder.report.rows if row.status == "unused"}
    assert all(unused[name] for name in replaced)
    assert [row.name for row in folder.report.problems] == ["embeddings.position_embeddings.weight"]
    head = MaskedLanguageHead(folder.backbone)
    learner = Learner(folder.backbone, {"mlm": head}).eval()
    assert all(row.status == "loaded" for row in huggingface.fill_heads(folder.tensors, learner))
    ids = torch.arange(5, 29)
    zeros = torch.zeros_like(ids)
    batch = Batch(
        ids=ids,
        positions=torch.arange(24),
        segments=zeros,
        order=None,
        lengths=(24,),
        starts=zeros[:1],
        records=zeros[:1],
        targets={},
    )
    with torch.no_grad():
        found, theirs = head.every(learner.states(batch), batch), made(input_ids=ids[None]).logits[0]
    torch.testing.assert_close(found, theirs, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ({"conv_kernel_size": 3}, ("conv_kernel_size", "3", "0")),
        ({"position_biased_input": True}, ("position_biased_input", "True")),
        ({"relative_attention": False}, ("relative_attention", "False")),
        ({"pos_att_type": ["p2p"]}, ("pos_att_type", "['p2p']")),
        ({"norm_rel_ebd": "group"}, ("norm_rel_ebd", "'group'")),
        ({"position_buckets": 7}, ("buckets", "7")),
        ({"position_buckets": 4.5}, ("position_buckets", "4.5")),
        ({"max_relative_positions": 5}, ("farthest", "5")),
        ({"share_att_key": "yes"}, ("share_att_key", "'yes'")),
        ({"attention_head_size": 4}, ("attention_head_size", "4")),
        ({"embedding_size": None}, ("embedding_size", "None")),
        ({"hidden_act": "mish"}, ("hidden_act", "'mish'")),
        ({"pooler_hidden_act": "tanh"}, ("pooler_hidden_act", "'tanh'", "'gelu'")),
        ({"pooler_hidden_size": 8}, ("pooler_hidden_size", "8")),
        ({"pooler_dropout": 0.1}, ("pooler_dropout", "0.1")),
        ({"tie_word_embeddings": False}, ("tie_word_embeddings", "False")),
    ],
    ids=str,
)
def test_other_mathematics_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], values: tuple[str, ...], tmp_path: Path
) -> None:
    save_theirs(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refusal("unsupported-model", *values):
        _ = open_folder(tmp_path).backbone
