"""DeBERTa in its three versions (He et al. 2021, 2023): disentangled attention, and no absolute positions.

The first is read as the second, as which it is written: its queries, keys and values are stacked by head, keys have no
biases, and vectors of distances no norm. Scores without one of the two terms of distances get it with weights of 0.

In their classes the pooler is outside the encoder and the layers of relative positions are inside. The masked-LM head
has two sets of names, of which BERT's are written ("legacy").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from osbert.interop.huggingface.family import Family, Names, Problem
from osbert.models.architecture import Architecture

TERMS = {"c2p", "p2c"}
"""The scores of distances: content to position and position to content."""


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    for name, only, absent in (("relative_attention", True, False), ("position_biased_input", False, True)):
        if (value := config.get(name, absent)) is not only:
            problem(f"{name} is {value!r}, which is not supported in deberta-v2 models; only {only!r} is.")
    if not _words(config.get("pos_att_type")) <= TERMS:
        problem(f"pos_att_type is {config.get('pos_att_type')!r}; it may hold {' and '.join(sorted(TERMS))}.")
    norm = "none" if _is_first(config) else config.get("norm_rel_ebd", "none")
    if norm not in ("none", "layer_norm"):
        problem(f"norm_rel_ebd is {norm!r}; it must be none or layer_norm.")
    _check_widths(config, problem)
    return {"distance_norm": norm == "layer_norm", **_distances(config, problem), **_embedding(config, problem)}


def _is_first(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == "deberta"


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
    first, (buckets, farthest) = _is_first(config), numbers.values()
    if not isinstance(shared := config.get("share_att_key", False), bool):
        problem(f"share_att_key must be true or false, but is {shared!r}.")
    return {
        "buckets": 0 if first else max(buckets, 0),
        "farthest": farthest if farthest > 0 else config.get("max_position_embeddings"),
        # Distances share the projections of tokens, if both terms of scores do.
        "distance_projections": not (shared is True and not first and _words(config.get("pos_att_type")) == TERMS),
    }


def as_second(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Mapping[str, Tensor]:
    """Return the tensors of a model with both terms of distances, and of the first version as the second's."""
    terms, heads = _words(config.get("pos_att_type")), config.get("num_attention_heads")
    if _is_first(config) and isinstance(heads, int) and heads > 0:
        tensors = dict(_split_first(tensors, heads))
    if terms == TERMS:
        return tensors
    # Scores are divided by sqrt(K (1 + the number of terms)).
    scale = math.sqrt((1 + len(TERMS)) / (1 + len(terms)))
    projections = {"c2p": (".key_proj.", ".pos_key_proj."), "p2c": (".query_proj.", ".pos_query_proj.")}
    both = {name: tensor.float() * scale if "query_proj." in name else tensor for name, tensor in tensors.items()}
    for term, (of_tokens, of_distances) in projections.items():
        for name in tensors:
            if of_tokens in name and (distance_name := name.replace(of_tokens, of_distances)) not in tensors:
                both[distance_name] = both[name].clone() if term in terms else torch.zeros_like(both[name])
    return both


def _split_first(tensors: Mapping[str, Tensor], heads: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of the first version by the second's names, with biases of 0 where it has none."""
    renamed = {"q_bias": "query_proj.bias", "v_bias": "value_proj.bias"}
    for name, tensor in tensors.items():
        inside, mark, part = name.rpartition(".attention.self.")
        begin = inside + mark
        if mark and part == "in_proj.weight" and tensor.ndim == 2 and not tensor.shape[0] % (3 * heads):
            rows = tensor.unflatten(0, (heads, 3, -1)).unbind(1)  # (3 H K, D) -> 3 x (H, K, D)
            for projection, weight in zip(("query", "key", "value"), rows, strict=True):
                yield f"{begin}{projection}_proj.weight", weight.flatten(0, 1)
            yield f"{begin}key_proj.bias", tensor.new_zeros(len(tensor) // 3)
        elif mark and part == "pos_proj.weight" and tensor.ndim:
            yield f"{begin}pos_key_proj.weight", tensor
            yield f"{begin}pos_key_proj.bias", tensor.new_zeros(len(tensor))
        else:
            yield begin + renamed.get(part, part.replace("pos_q_proj.", "pos_query_proj.")), tensor


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
        "norm_rel_ebd": "layer_norm" if sizes.distance_norm else "none",
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
    types=("deberta-v2", "deberta"),
    name="DebertaV2",
    backbone="deberta",
    values={"positions": "disentangled", "pooling": "gelu"},
    varies=(
        *("activation", "segments", "embedding", "project_first", "buckets", "farthest"),
        *("distance_projections", "distance_norm"),
    ),
    fits=lambda sizes: sizes.project_first == bool(sizes.embedding),
    fields={"classifier_dropout": "cls_dropout"},
    without=("embedding_size",),
    only={
        "is_decoder": False,
        "conv_kernel_size": 0,
        "talking_head": False,
        "pooler_hidden_act": "gelu",
        "pooler_dropout": 0,
        "tie_word_embeddings": True,
    },
    defaults={"layer_norm_eps": 1e-7, "type_vocab_size": 0},
    read=_read,
    prepare=as_second,
    written=_config_fields,
    tensors=(
        ("embeddings.embed_proj.", "embeddings_project."),
        ("encoder.LayerNorm.", "encoder.relative_norm."),
        *(
            (f".attention.self.{part}_proj.", f".attention.self.{part}.")
            for part in ("query", "key", "value", "pos_query", "pos_key")
        ),
    ),
    aliases=(
        ("lm_predictions.lm_head.dense.", "cls.predictions.transform.dense."),
        ("lm_predictions.lm_head.LayerNorm.", "cls.predictions.transform.LayerNorm."),
        ("lm_predictions.lm_head.bias", "cls.predictions.bias"),
    ),
    heads={"sequence": _POOLER, "choice": _POOLER},
)
