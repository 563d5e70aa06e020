"""GPT-2 (Radford et al. 2019): causal pre-normalised blocks, a final norm, and scores by the piece embeddings alone.

It has no pooler. Classifiers of texts cannot be published: theirs have no biases, and find the last token by a padding
piece. Its Conv1D is a linear layer with a transposed matrix.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from osbert.interop.huggingface.family import CLASSES, Family, Names, Problem

FIELDS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    "layer_norm_eps": "layer_norm_epsilon",
    "classifier_dropout": "summary_first_dropout",
}
DEFAULTS = {"n_inner": 0, "resid_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5}
"""Their defaults where they are not BERT's; n_inner: four times the width."""
WITHOUT = ("type_vocab_size", "position_embedding_type", "is_decoder")
VALUES = {
    "segments": 0,
    "direction": "left_to_right",
    "embedding_norm": False,
    "pooling": "none",
    "piece_transform": False,
}
SUMMARY = {
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
}
"""The score of a choice in their model with two heads: one linear layer on one token's state."""
CHOICE = "DoubleHeadsModel"
CHOICES: Names = (("multiple_choice_head.summary.", "classifier."),)
"""The head of their model with two heads: a language model, and a score of each choice by its last token."""
BLOCK: Names = (
    (".attn.c_proj.", ".attention.output.dense."),
    (".mlp.c_fc.", ".intermediate.dense."),
    (".mlp.c_proj.", ".output.dense."),
    (".ln_1.", ".attention.output.LayerNorm."),
    (".ln_2.", ".output.LayerNorm."),
    ("lm_head.", "cls.predictions.decoder."),
)
FUSED = {".attn.c_attn.": tuple(f".attention.self.{part}." for part in ("query", "key", "value"))}
TRANSPOSED = (".attn.c_attn.", ".attn.c_proj.", ".mlp.c_fc.", ".mlp.c_proj.")
BUFFERS = (".attn.bias", ".attn.masked_bias", "pooler.dense.weight", "pooler.dense.bias")
"""Attention masks in files of the first releases, and the unused pooler of early pretrainings of osbert."""


def one_dropout(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """Return no setting; it is a problem if the embeddings are dropped at another rate than all else."""
    rate = config.get("resid_pdrop", 0.1)
    if (given := config.get("embd_pdrop", 0.1)) != rate:
        problem(f"embd_pdrop is {given!r}, but resid_pdrop {rate!r}: only one for both goes.")
    return {}


def one_scale(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors with queries scaled so that all layers divide their scores by sqrt(K).

    Layer n, from 1, divides them by n as well with `scale_attn_by_inverse_layer_idx` (Mistral's GPT-2), and by neither
    without `scale_attn_weights`.
    """
    width, heads = config.get("n_embd"), config.get("n_head")
    rooted = config.get("scale_attn_weights", True) or not (isinstance(width, int) and isinstance(heads, int) and heads)
    root = 1.0 if rooted else math.sqrt(width // heads)  # type: ignore[operator]
    scaled = dict(tensors)
    for name, tensor in tensors.items():
        layer = re.search(r"\bh\.(\d+)\.attn\.c_attn\.", name)
        if layer and tensor.ndim:
            each = 1 + int(layer[1]) if config.get("scale_attn_by_inverse_layer_idx") else 1
            query, others = tensor.float().tensor_split([tensor.shape[-1] // 3], dim=-1)
            scaled[name] = torch.cat([query * (root / each), others], dim=-1)
    return scaled


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    for name in ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        if not isinstance(value := config.get(name, False), bool):
            problem(f"{name} is {value!r}; it must be true or false.")
    return one_dropout(config, problem)


FAMILY = Family(
    types=("gpt2",),
    name="GPT2",
    backbone="transformer",
    values={**VALUES, "normalization": "pre", "scaled_outputs": True},
    varies=("activation",),
    fits=lambda sizes: True,
    fields={**FIELDS, "hidden_act": "activation_function"},
    without=WITHOUT,
    defaults={**DEFAULTS, "activation_function": "gelu_new"},
    only=SUMMARY,
    read=_read,
    prepare=one_scale,
    written=lambda sizes: {"embd_pdrop": sizes.dropout},
    tensors=(
        *BLOCK,
        ("wte.", "embeddings.word_embeddings."),
        ("wpe.", "embeddings.position_embeddings."),
        ("ln_f.", "encoder.LayerNorm."),
        ("h.", "encoder.layer."),
    ),
    fused=FUSED,
    transposed=TRANSPOSED,
    buffers=BUFFERS,
    heads={"choice": CHOICES},
    classes={**{form: CLASSES[form] for form in ("tokens", "span")}, "choice": CHOICE},
    causal="LMHeadModel",
)
