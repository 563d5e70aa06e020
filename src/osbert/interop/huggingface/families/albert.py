"""ALBERT (Lan et al. 2020): shared blocks, projected narrow embeddings, and sentence order.

Embeddings are normalised first and then projected, as in ELECTRA. A group of ALBERT is a block here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import CLASSES, Family, Problem

_LAYER = ".albert_layers.0"


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    numbers = {
        "num_hidden_groups": config.get("num_hidden_groups", 1),
        "embedding_size": config.get("embedding_size", 128),
    }
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            problem(f"{name} must be a whole number of at least 1, but is {value!r}.")
            return {}
    groups, width = numbers.values()
    layers = config.get("num_hidden_layers")
    if isinstance(layers, int) and layers % groups:
        problem(f"num_hidden_groups is {groups}, which num_hidden_layers {layers} is no multiple of.")
    if width == config.get("hidden_size"):
        problem(f"embedding_size is {width}, as hidden_size: a projection to the same width is not supported.")
    return {"distinct": groups, "embedding": width}


FAMILY = Family(
    types=("albert",),
    name="Albert",
    varies=("activation", "segments", "embedding", "distinct"),
    fits=lambda sizes: sizes.segments > 0 and sizes.embedding > 0 and sizes.distinct > 0,
    fields={"classifier_dropout": "classifier_dropout_prob"},
    without=("embedding_size",),
    only={"is_decoder": False, "inner_group_num": 1},
    defaults={"hidden_act": "gelu_new", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    read=_read,
    written=lambda sizes: {
        "embedding_size": sizes.embedding,
        "num_hidden_groups": sizes.distinct,
        "inner_group_num": 1,
    },
    tensors=(
        ("encoder.embedding_hidden_mapping_in.", "embeddings_project."),
        ("encoder.albert_layer_groups.", "encoder.layer."),
        (f"{_LAYER}.attention.query.", ".attention.self.query."),
        (f"{_LAYER}.attention.key.", ".attention.self.key."),
        (f"{_LAYER}.attention.value.", ".attention.self.value."),
        (f"{_LAYER}.attention.dense.", ".attention.output.dense."),
        (f"{_LAYER}.attention.LayerNorm.", ".attention.output.LayerNorm."),
        (f"{_LAYER}.ffn.", ".intermediate.dense."),
        (f"{_LAYER}.ffn_output.", ".output.dense."),
        (f"{_LAYER}.full_layer_layer_norm.", ".output.LayerNorm."),
        ("pooler.", "pooler.dense."),
        ("predictions.dense.", "cls.predictions.transform.dense."),
        ("predictions.LayerNorm.", "cls.predictions.transform.LayerNorm."),
        ("predictions.decoder.", "cls.predictions.decoder."),
        ("predictions.bias", "cls.predictions.bias"),
        ("sop_classifier.classifier.", "cls.seq_order."),
    ),
    classes={**CLASSES, "order": "Model"},
    pretraining="ForPreTraining",
)
