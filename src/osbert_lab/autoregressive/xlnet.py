"""XLNet (Yang et al. 2019): scores of distances and segments in place of positions, and a second stream of queries.

Only their classifiers have a pooler, in the summary of the last token. Matrices have a separate axis for heads. Their
model pads on the left; a batch here has no padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import CLASSES, Family, Names, Problem
from osbert.models.architecture import MOST, Architecture

UNCLAMPED = MOST["length"]
"""The farthest distance if theirs are not clamped (clamp_len = -1)."""
LOOKING = {"bi": "both", "uni": "left_to_right"}
"""Their attn_type -> our direction."""
SUMMARY: Names = (("sequence_summary.summary.", "pooler.dense."), ("logits_proj.", "classifier."))


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    numbers = {"clamp_len": -1, "mem_len": 0}
    for name in numbers:
        value = config.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            problem(f"{name} must be a whole number, but is {value!r}.")
        elif value is not None:
            numbers[name] = value
    looking = config.get("attn_type", "bi")
    if looking not in LOOKING:
        problem(f"attn_type is {looking!r}; only {' and '.join(LOOKING)} are supported.")
    width, heads, head_width = (config.get(name) for name in ("d_model", "n_head", "d_head"))
    if head_width is not None and isinstance(width, int) and isinstance(heads, int) and head_width * heads != width:
        problem(f"d_head is {head_width!r}, but d_model / n_head must be the width of a head.")
    direction, rate = LOOKING.get(looking, "both"), config.get("dropout")
    return {
        "direction": direction,
        "summary": "last" if direction == "both" else "token",
        "farthest": numbers["clamp_len"] if numbers["clamp_len"] > 0 else UNCLAMPED,
        "memory": max(numbers["mem_len"], 0),
        **({} if "attention_dropout" in config else {"attention_dropout": 0.1 if rate is None else rate}),
    }


def _config_fields(sizes: Architecture) -> dict[str, Any]:
    apart = {} if sizes.attention_dropout == sizes.dropout else {"attention_dropout": sizes.attention_dropout}
    return {
        **apart,
        "attn_type": next(name for name, direction in LOOKING.items() if direction == sizes.direction),
        "clamp_len": -1 if sizes.farthest == UNCLAMPED else sizes.farthest,
        "mem_len": sizes.memory or None,
        "d_head": sizes.key_width,
        "tie_word_embeddings": True,
    }


def _axes(name: str, width: int) -> tuple[int, int] | None:
    """Return the two axes (H, K) of a tensor with an axis for heads; the query vector has one for sequences."""
    if name.endswith("mask_emb"):
        return 1, -1
    # -1: the number of heads follows from the size.
    return (-1, width) if ".rel_attn." in name and "layer_norm" not in name else None


_MATRICES = {"q": "self.query", "k": "self.key", "v": "self.value", "r": "self.relative.inward", "o": "output.dense"}
_VECTORS = {"seg_embed": "segments", "r_s_bias": "segment", "r_w_bias": "content", "r_r_bias": "distance"}

FAMILY = Family(
    types=("xlnet",),
    name="XLNet",
    backbone="transformer",
    values={
        "positions": "distances",
        "segments": 3,
        "segment_scores": True,
        "query_vector": True,
        "embedding_norm": False,
        "piece_transform": False,
        "piece_biases": True,
    },
    varies=("activation", "direction", "summary", "farthest", "memory"),
    fits=lambda sizes: sizes.summary_is_last,
    fields={
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "d_inner",
        "max_position_embeddings": "n_positions",
        "hidden_act": "ff_activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "summary_last_dropout",
    },
    defaults={"n_positions": 512, "ff_activation": "gelu", "dropout": 0.1},
    without=("type_vocab_size", "position_embedding_type", "is_decoder", "attention_probs_dropout_prob"),
    only={
        "bi_data": False,
        "same_length": False,
        "summary_type": "last",
        "summary_use_proj": True,
        "summary_activation": "tanh",
        "tie_word_embeddings": True,
    },
    read=_read,
    written=_config_fields,
    tensors=(
        *((f".rel_attn.{name}", f".attention.self.relative.{vector}") for name, vector in _VECTORS.items()),
        (".rel_attn.layer_norm.", ".attention.output.LayerNorm."),
        *((f".rel_attn.{name}", f".attention.{matrix}.weight") for name, matrix in _MATRICES.items()),
        (".ff.layer_norm.", ".output.LayerNorm."),
        (".ff.layer_1.", ".intermediate.dense."),
        (".ff.layer_2.", ".output.dense."),
        ("word_embedding.", "embeddings.word_embeddings."),
        ("mask_emb", "embeddings.query"),
        ("lm_loss.bias", "cls.predictions.bias"),
        ("lm_loss.", "cls.predictions.decoder."),
        ("layer.#.", "encoder.layer.#."),
    ),
    transposed=tuple(f".rel_attn.{part}" for part in "qkvr"),
    axes=_axes,
    heads={"sequence": SUMMARY, "choice": SUMMARY},
    classes={**CLASSES, "span": "ForQuestionAnsweringSimple", "mlm": "LMHeadModel"},
)
