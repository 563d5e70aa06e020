"""Writes the folder gliner: tiny random models and their scores, by the package gliner (0.2.29), which no test needs.

pip install gliner==0.2.29
PYTHONPATH=tests/made python tests/lab/named_spans/make_gliner.py
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from gliner import GLiNER

import family_tokenizers

STORED = Path(__file__).parent / "gliner"
WORDS = ["good", "bad", "film", "the", "a", "actor", "city", "person", "##s", ".", "well", "-", "known", "in", ","]
TEXTS = ["the well-known actor in London, a good person.", "a film", "bad films . the city  play"]
LABELS = ["person", "city", "well - known film"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
DEBERTA = {
    "model_type": "deberta-v2", "max_position_embeddings": 128, "relative_attention": True, "position_buckets": 8,
    "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
ADDED = ["[FLERT]", "<<ENT>>", "<<SEP>>"]


def save_bert(folder: Path) -> None:
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    transformers.BertTokenizerFast(vocab=str(vocabulary), do_lower_case=True).save_pretrained(folder)


def make(name: str, save: Callable[[Path], None], encoder: dict[str, Any], *, std: float = 0.27, **more: Any) -> None:
    with tempfile.TemporaryDirectory() as source:
        save(Path(source))
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        encoder = {**SIZES, **encoder, "vocab_size": len(tokenizer)}
        (Path(source) / "config.json").write_text(json.dumps(encoder))
        config = {
            "model_name": source, "encoder_config": encoder, "hidden_size": 12, "max_width": 4, "num_rnn_layers": 1,
            "span_mode": "markerV0", "class_token_index": -1, "vocab_size": -1, **more,
        }  # fmt: skip
        model = GLiNER.from_config(config, backbone_from_pretrained=False)
        torch.manual_seed(1)
        with torch.no_grad():
            for weight_name, weight in model.model.named_parameters():
                if "norm" not in weight_name.lower():
                    weight.normal_(std=std if weight.ndim > 1 else 0.1)
        model.eval()
        model.save_pretrained(STORED / name, safe_serialization=True)
        # The package rebuilds the post-processor of some tokenizers; published folders have the original one.
        tokenizer.add_tokens(ADDED, special_tokens=True)
        tokenizer.save_pretrained(STORED / name)
    path = STORED / name / "gliner_config.json"
    stored = json.loads(path.read_text()) | {"model_name": name}
    path.write_text(json.dumps(stored, indent=1) + "\n")
    rows = [expect(model, text) for text in TEXTS]
    (STORED / name / "expected.json").write_text(json.dumps({"labels": LABELS, "texts": rows}) + "\n")


def expect(model: Any, text: str) -> dict[str, Any]:
    """Return the ids, the logits (words, width, types) and the spans of a text."""
    words = [*model.data_processor.words_splitter(text)]
    rows = [{"tokenized_text": [word for word, _, _ in words], "ner": []}]
    batch = model.data_processor.collate_raw_batch(rows, entity_types=LABELS)
    inputs = model.data_processor.tokenize_and_prepare_labels(batch, prepare_labels=False)
    names = ("input_ids", "attention_mask", "words_mask")
    with torch.no_grad():
        scores = model.model(
            **{name: inputs[name] for name in names},
            text_lengths=batch["seq_length"],
            span_idx=batch["span_idx"],
            span_mask=batch["span_mask"],
        ).logits[0]
    spans = {
        kind: [
            [span["start"], span["end"], span["label"], round(span["score"], 6)]
            for span in model.predict_entities(text, LABELS, threshold=0.5, flat_ner=kind == "flat")
        ]
        for kind in ("flat", "nested")
    }
    logits = [[[round(score, 6) for score in types] for types in widths] for widths in scores.tolist()]
    return {"text": text, "ids": inputs["input_ids"][0].tolist(), "logits": logits, **spans}


if __name__ == "__main__":
    make("bert", save_bert, {"model_type": "bert", "max_position_embeddings": 64})
    make("deberta", family_tokenizers.save_deberta, DEBERTA)
    make("modernbert", family_tokenizers.save_modernbert, {
        "model_type": "modernbert", "max_position_embeddings": 128, "num_hidden_layers": 2, "pad_token_id": 0,
        "global_attn_every_n_layers": 2, "local_attention": 8,
    }, std=0.15, hidden_size=16, num_rnn_layers=0)  # fmt: skip
