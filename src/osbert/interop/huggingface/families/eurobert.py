"""EuroBERT (Boizard et al. 2025): Llama's block with bidirectional attention, and an output table of its own.

It has RMSNorm, rotary positions, gates, shared keys and values in large sizes, and no biases. Its classifier of texts
has a dense layer with biases and GELU, independent of the blocks' settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.families.nomicbert import head_width, read_base, write_base
from osbert.interop.huggingface.family import CLASSES, Family, Problem
from osbert.models.architecture import Architecture

POOLINGS = {"bos": "token", "mean": "mean", "late": "late"}
"""Their ways from states to a text's scores -> our summaries. Scores are linear in what is pooled: so late, the mean of
scores, is the scores of the mean."""
POOLING, FIRST_POOLING = "classifier_pooling", "clf_pooling"
"""The field that says which, and that of the first releases, whose code came with them."""


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    head_width(config, problem)
    field = POOLING if POOLING in config else FIRST_POOLING
    pooling = config.get(field, "late")
    if pooling not in POOLINGS:
        problem(f"{field} is {pooling!r}; it must be one of {', '.join(POOLINGS)}.")
    tied = config.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        problem(f"tie_word_embeddings is {tied!r}; it must be true or false.")
    return {
        "key_heads": _key_heads(config, problem),
        "summary": POOLINGS.get(pooling, "late"),
        "tied": tied,
        **read_base(config, problem, default=10_000.0),
    }


def _key_heads(config: Mapping[str, Any], problem: Problem) -> int:
    """Return how many heads of keys there are, 0 for as many as of queries."""
    heads, key_heads = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if key_heads is None or key_heads == heads:
        return 0
    whole = isinstance(key_heads, int) and not isinstance(key_heads, bool) and key_heads > 0
    if not whole or not isinstance(heads, int) or heads % key_heads:
        problem(f"num_key_value_heads is {key_heads!r}, which does not divide num_attention_heads, {heads!r}.")
        return 0
    return key_heads


def _config_fields(sizes: Architecture) -> dict[str, Any]:
    return {
        **write_base(sizes),
        "num_key_value_heads": sizes.key_heads or sizes.heads,
        "head_dim": sizes.width // sizes.heads,
        "tie_word_embeddings": sizes.tied,
        POOLING: next(name for name, summary in POOLINGS.items() if summary == sizes.summary),
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    }


FAMILY = Family(
    types=("eurobert",),
    name="EuroBert",
    backbone="model",
    values={
        "segments": 0,
        "positions": "rotary",
        "normalization": "pre",
        "root_norm": True,
        "gated": True,
        "biases": False,
        "embedding_norm": False,
        "pooling": "gelu",
        "piece_transform": False,
    },
    varies=("activation", "rotary_base", "key_heads", "summary", "tied"),
    fits=lambda sizes: sizes.summary in POOLINGS.values(),
    fields={"attention_probs_dropout_prob": "attention_dropout", "layer_norm_eps": "rms_norm_eps"},
    without=("type_vocab_size", "position_embedding_type"),
    only={"is_decoder": False, "attention_bias": False, "mlp_bias": False, "pretraining_tp": 1, "hidden_dropout": 0.0},
    defaults={"hidden_act": "silu", "hidden_dropout_prob": 0.0, "attention_dropout": 0.0, "rms_norm_eps": 1e-5},
    read=_read,
    written=_config_fields,
    tensors=(
        ("dense.", "pooler.dense."),
        ("embed_tokens.", "embeddings.word_embeddings."),
        (".self_attn.q_proj.", ".attention.self.query."),
        (".self_attn.k_proj.", ".attention.self.key."),
        (".self_attn.v_proj.", ".attention.self.value."),
        (".self_attn.o_proj.", ".attention.output.dense."),
        (".input_layernorm.", ".attention.output.LayerNorm."),
        (".post_attention_layernorm.", ".output.LayerNorm."),
        (".mlp.gate_proj.", ".intermediate.dense."),
        (".mlp.up_proj.", ".intermediate.gate."),
        (".mlp.down_proj.", ".output.dense."),
        ("norm.", "encoder.LayerNorm."),
        ("layers.", "encoder.layer."),
        ("lm_head.", "cls.predictions.decoder."),
    ),
    halves=True,
    buffers=("rotary_emb.inv_freq",),
    classes={form: CLASSES[form] for form in ("tokens", "sequence", "mlm")},
)
