"""MPNet: its buckets at lengths beyond the farthest, and what cannot be honoured."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from safetensors.torch import load_file, save_file

from osbert.interop.folder import open_folder
from osbert.models import Padded
from refusals import refusal

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 302,
    "initializer_range": 0.3,
}


def save(folder: Path) -> transformers.MPNetModel:
    torch.manual_seed(0)
    made = transformers.MPNetModel(transformers.MPNetConfig(**SIZES)).eval()
    made.save_pretrained(folder)
    return made


def test_states_are_theirs_beyond_the_farthest_bucket(tmp_path: Path) -> None:
    """All distances from 128 on are one; below, each edge of a bucket lies where theirs does. Padding is unseen."""
    made = save(tmp_path)
    lengths = torch.tensor([300, 150, 20])
    ids, mask = torch.randint(5, 60, (3, 300)), torch.arange(300) < lengths[:, None]
    ids[~mask] = 1
    with torch.no_grad():
        found = Padded(open_folder(tmp_path).backbone.eval())(ids, mask).states
        expected = made(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(found[mask], expected[mask], rtol=0, atol=2e-5)


def test_the_numbers_of_distances_must_be_there(tmp_path: Path) -> None:
    save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["encoder.relative_attention_bias.weight"]
    save_file(tensors | {"encoder.surplus.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with refusal("damaged-file", "encoder.relative_attention_bias.weight", "32"):
        _ = open_folder(tmp_path).backbone
    save_file(
        {
            **tensors,
            "encoder.relative_attention_bias.weight": torch.ones(32, 2),
            "encoder.surplus.weight": torch.ones(2),
        },
        tmp_path / "model.safetensors",
    )
    assert [row.name for row in open_folder(tmp_path).report.problems] == ["encoder.surplus.weight"]


@pytest.mark.parametrize(
    ("field", "value", "only"),
    [
        ("relative_attention_num_buckets", 64, "32"),
        ("relative_attention_num_buckets", 20, "32"),  # transformers makes a table of 20 and reads its 32nd row
        ("hidden_act", "mish", "'mish'"),
        ("pad_token_id", 0, "1"),
        ("is_decoder", True, "False"),
        ("tie_word_embeddings", False, "True"),
    ],
)
def test_other_mathematics_is_refused(field: str, value: object, only: str, tmp_path: Path) -> None:
    save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with refusal("unsupported-model", field, repr(value), only):
        _ = open_folder(tmp_path).backbone
