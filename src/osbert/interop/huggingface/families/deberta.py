"""DeBERTa, second and third version (He et al. 2021, 2023): disentangled attention, and no absolute positions.

In their classes the pooler is outside the encoder and the layers of relative positions are inside. The masked-LM head
has two sets of names, of which BERT's are written ("legacy").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import Family, Names, Problem
from osbert.models.architecture import Architecture

TERMS = {"c2p", "p2c"}
"""The scores of distances: content to position and position to content."""


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    for name, only, absent in (("relative_attention", True, False), ("position_biased_input", False, True)):
        if (value := config.get(name, absent)) is not only:
            problem(f"{name} is {value!r}, which is not supported in deberta-v2 models; only {only!r} is.")
    if _words(config.get("pos_att_type")) != TERMS:
        problem(f"pos_att_type is {config.get('pos_att_type')!r}; only both of {', '.join(sorted(TERMS))} go.")
    if (norm := config.get("norm_rel_ebd", "none")) != "layer_norm":
        problem(f"norm_rel_ebd is {norm!r}, which is not supported; only 'layer_norm' is.")
    _check_widths(config, problem)
    return {**_distances(config, problem), **_embedding(config, problem)}


def _words(value: object) -> set[str]:
    """Return the words of a field: a list, or a string with bars between words."""
    if isinstance(value, str):
        value = value.lower().split("|")
    return {str(word).strip() for word in value} if isinstance(value, list) else set()


def _check_widths(config: Mapping[str, Any], problem: Problem) -> None:
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if (pooler := config.get("pooler_hidden_size", width)) != width:
        problem(f"pooler_hidden_size is {pooler!r}; only hidden_size, {width!r}, is supported.")
    head = config.get("attention_head_size")
    if head is not None and isinstance(width, int) and isinstance(heads, int) and head * heads != width:
        problem(f"attention_head_size is {head!r}; only hidden_size / num_attention_heads is supported.")


def _distances(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """Return the settings of the vectors of distances."""
    numbers = {name: config.get(name, -1) for name in ("position_buckets", "max_relative_positions")}
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool):
            problem(f"{name} must be a whole number, but is {value!r}.")
            return {}
    buckets, farthest = numbers.values()
    if not isinstance(shared := config.get("share_att_key", False), bool):
        problem(f"share_att_key must be true or false, but is {shared!r}.")
    return {
        "buckets": max(buckets, 0),
        "farthest": farthest if farthest > 0 else config.get("max_position_embeddings"),
        "distance_projections": not shared,
    }


def _embedding(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    width = config.get("embedding_size", config.get("hidden_size"))
    if not isinstance(width, int) or isinstance(width, bool):
        problem(f"embedding_size must be a whole number, but is {width!r}.")
    elif width != config.get("hidden_size"):
        return {"embedding": width, "project_first": True}
    return {}


def _config_fields(sizes: Architecture) -> dict[str, Any]:
    return {
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm",
        "share_att_key": not sizes.distance_projections,
        "position_buckets": sizes.buckets or -1,
        "max_relative_positions": sizes.farthest,
        "embedding_size": sizes.embedding or sizes.width,
        "pooler_hidden_act": "gelu",
        "pooler_dropout": 0,
        "legacy": True,
    }


_POOLER: Names = (("pooler.dense.", "pooler.dense."),)
"""The pooler is part of their classes for texts, not of the encoder."""


FAMILY = Family(
    types=("deberta-v2",),
    name="DebertaV2",
    backbone="deberta",
    values={"positions": "disentangled", "pooling": "gelu"},
    varies=("activation", "segments", "embedding", "project_first", "buckets", "farthest", "distance_projections"),
    fits=lambda sizes: sizes.project_first == bool(sizes.embedding),
    fields={"classifier_dropout": "cls_dropout"},
    without=("embedding_size",),
    only={
        "is_decoder": False,
        "conv_kernel_size": 0,
        "pooler_hidden_act": "gelu",
        "pooler_dropout": 0,
        "tie_word_embeddings": True,
    },
    defaults={"layer_norm_eps": 1e-7, "type_vocab_size": 0},
    read=_read,
    written=_config_fields,
    tensors=(
        ("embeddings.embed_proj.", "embeddings_project."),
        ("encoder.LayerNorm.", "encoder.relative_norm."),
        (".attention.self.query_proj.", ".attention.self.query."),
        (".attention.self.key_proj.", ".attention.self.key."),
        (".attention.self.value_proj.", ".attention.self.value."),
        (".attention.self.pos_query_proj.", ".attention.self.pos_query."),
        (".attention.self.pos_key_proj.", ".attention.self.pos_key."),
    ),
    aliases=(
        ("lm_predictions.lm_head.dense.", "cls.predictions.transform.dense."),
        ("lm_predictions.lm_head.LayerNorm.", "cls.predictions.transform.LayerNorm."),
        ("lm_predictions.lm_head.bias", "cls.predictions.bias"),
    ),
    heads={"sequence": _POOLER, "choice": _POOLER},
)
