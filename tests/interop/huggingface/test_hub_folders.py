"""BERT folders as they lie on the hub: old configs, PyTorch files, names of TensorFlow, vocab.txt and little else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from tokenizers import ByteLevelBPETokenizer

import osbert
from osbert.interop.folder import open_folder
from theirs import SIZES, WORDS

OLD = {name: value for name, value in SIZES.items() if name != "vocab_size"} | {"hidden_act": "gelu"}
POOLER = {
    "directionality": "bidi",
    "pooler_fc_size": 16,
    "pooler_num_attention_heads": 2,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 8,
    "pooler_type": "first_token_transform",
}
FOLDERS: dict[str, dict[str, Any]] = {
    "scibert": {"config": OLD | {"type_vocab_size": 2}},
    "biobert": {"config": OLD | {"type_vocab_size": 2}, "old_names": True},
    "pubmedbert": {
        "config": OLD | {"architectures": ["BertForMaskedLM"], "model_type": "bert", "pad_token_id": 0},
        "tokenizer_config": {"do_lower_case": True, "model_max_length": 512},
    },
    "spanbert": {
        "config": OLD | POOLER | {"type_vocab_size": 2},
        "tokenizer_config": {"do_lower_case": False},
        "further": {"cls.sbo.dense.weight": (16, 32), "bert.embeddings.position_ids": (1, 24)},
    },
    "chinese-macbert": {
        "config": OLD | POOLER | {"model_type": "bert", "gradient_checkpointing": False, "output_past": True},
        "tokenizer_config": {"init_inputs": []},
        "special_tokens_map": {"unk_token": "[UNK]", "sep_token": "[SEP]", "mask_token": "[MASK]"},
        "added_tokens": {},
    },
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_the_hub_has_their_states(name: str, tmp_path: Path) -> None:
    files = dict(FOLDERS[name])
    old_names, further = files.pop("old_names", False), files.pop("further", {})
    files["config"] = files["config"] | {"vocab_size": len(WORDS)}
    torch.manual_seed(0)
    made = transformers.BertForPreTraining(transformers.BertConfig(**SIZES | {"vocab_size": len(WORDS)})).eval()
    tensors = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    tensors |= {name: torch.ones(shape) for name, shape in further.items()}
    if old_names:
        tensors = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS.vocabulary) + "\n")
    for file, content in files.items():
        (tmp_path / f"{file}.json").write_text(json.dumps(content))

    report = open_folder(tmp_path).report
    assert report.select_names("new") == () and report.problems == ()
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    text = "the film, was not good"
    ids = torch.tensor(theirs(text)["input_ids"])[None]
    with torch.no_grad():
        expected = made.bert(ids).last_hidden_state[0]
    model = osbert.load(tmp_path)
    vectors = model.embed([text], pooling="mean", normalize=False)
    torch.testing.assert_close(torch.as_tensor(vectors[0]), expected.mean(0), rtol=0, atol=5e-6)


def test_the_first_deberta_has_byte_level_pieces_and_their_states(tmp_path: Path) -> None:
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(["the film was good"] * 9, vocab_size=270, special_tokens=["[CLS]", "[PAD]", "[SEP]"])
    trained.save_model(str(tmp_path))
    ids = {piece: index for index, piece in enumerate([*trained.get_vocab(), "[UNK]", "[MASK]"])}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "vocab_type": "gpt2"}))
    disentangled = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"}
    config = SIZES | disentangled | {"vocab_size": len(ids), "type_vocab_size": 0, "max_relative_positions": -1}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "deberta"}))
    torch.manual_seed(0)
    made = transformers.DebertaForMaskedLM(transformers.DebertaConfig(**config)).eval()
    torch.save(made.state_dict(), tmp_path / "pytorch_model.bin")
    text = "was it good?"
    one = torch.tensor(transformers.AutoTokenizer.from_pretrained(tmp_path)(text)["input_ids"])[None]
    with torch.no_grad():
        expected = made.deberta(one).last_hidden_state[0].mean(0)
    vectors = osbert.load(tmp_path).embed([text], pooling="mean", normalize=False)
    torch.testing.assert_close(torch.as_tensor(vectors[0]), expected, rtol=0, atol=5e-6)
