"""ModernBERT (Warner et al. 2024), and Ettin and mmBERT, which are of its type.

Pre-normalised blocks without biases, gated feed-forward layers, rotary positions, and local blocks between global ones.
Every head but that of masked pieces begins with a dense layer, an activation and a norm, which its class calls "head":
the same names for texts, tokens and masked pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import ACTIVATIONS, Family, Names, Problem, activation_name, rotary_base
from osbert.models.architecture import Architecture

LOCAL, GLOBAL = "sliding_attention", "full_attention"
BASES = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}
"""Kind of block -> the field with its rotary base in configs of the first releases, and the default."""
BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
EVERY = "global_attn_every_n_layers"
DEFAULT = {"rope_type": "default"}
IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
"""Ids of special pieces. No output depends on them; they are written as null, since the defaults may exceed a small
vocabulary."""


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    activation = config.get("hidden_activation", "gelu")
    if (given := config.get("classifier_activation", "gelu")) != activation:
        problem(f"classifier_activation is {given!r}, but hidden_activation {activation!r}: only one for both goes.")
    dropout = config.get("mlp_dropout", 0.0)
    if (given := config.get("embedding_dropout", 0.0)) != dropout:
        problem(f"embedding_dropout is {given!r}, but mlp_dropout {dropout!r}: only one for both goes.")
    pooling = config.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        problem(f"classifier_pooling is {pooling!r}; it must be cls or mean.")
    for name in BIASES:
        if config.get(name, False) is not False:
            problem(f"{name} is {config[name]!r}; only models without biases are supported.")
    return {
        "pooling": ACTIVATIONS.get(str(activation), "gelu"),
        "summary": "mean" if pooling == "mean" else "token",
        **_sight(config, problem),
    }


def _sight(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """Return the settings of local and global blocks."""
    every = _every(config, problem)
    width = config.get("local_attention", 128)
    if not isinstance(width, int) or isinstance(width, bool) or width < 2:
        problem(f"local_attention must be a whole number, 2 or more, but is {width!r}.")
        return {}
    bases = _bases(config, problem)
    if every == 1:
        return {"rotary_base": bases[GLOBAL]}
    return {
        # Their local_attention is the whole width of the window, ours one side of it.
        "window": width // 2,
        "global_every": every,
        "rotary_base": bases[GLOBAL],
        "local_base": bases[LOCAL],
    }


def _every(config: Mapping[str, Any], problem: Problem) -> int:
    """Return n if every n-th block is global, from the first on, by layer_types or global_attn_every_n_layers."""
    kinds, every = config.get("layer_types"), config.get(EVERY, 3)
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        problem(f"{EVERY} must be a whole number, 1 or more, but is {every!r}.")
        return 1
    if kinds is None:
        return every
    layers = config.get("num_hidden_layers")
    if not isinstance(kinds, list) or len(kinds) != layers:
        problem(f"layer_types must be a list of the {layers} layers' kinds, but is {kinds!r}.")
        return 1
    # Newer configs list the kind of every layer: find the period that produces this list.
    for period in (every, *range(1, len(kinds) + 1)):
        if kinds == _kinds(len(kinds), period):
            return period
    problem(f"layer_types is {kinds!r}; only lists in which every n-th is {GLOBAL}, from the first on, are supported.")
    return 1


def _kinds(layers: int, every: int) -> list[str]:
    return [LOCAL if layer % every else GLOBAL for layer in range(layers)]


def _bases(config: Mapping[str, Any], problem: Problem) -> dict[str, float]:
    """Return the base of the rotary angles of each kind of block."""
    if config.get("rope_scaling") is not None:
        problem(f"rope_scaling is {config['rope_scaling']!r}, which is not supported.")
    tables = config.get("rope_parameters") or {}
    if not isinstance(tables, dict) or not tables.keys() <= BASES.keys():
        problem(f"rope_parameters are {tables!r}; they must be a table for {GLOBAL} and one for {LOCAL}.")
        tables = {}
    bases: dict[str, float] = {}
    for kind, (field, default) in BASES.items():
        given = config.get(field, default)
        # GLOBAL precedes LOCAL in BASES, so its base is known here.
        if given is None and kind == LOCAL:  # as the first releases took it
            given = bases[GLOBAL]
        bases[kind] = rotary_base(tables.get(kind) or {}, given, field, problem)
    return bases


def _config_fields(sizes: Architecture) -> dict[str, Any]:
    # Without a window every block is global.
    every = sizes.global_every if sizes.window else 1
    bases = {GLOBAL: sizes.rotary_base, LOCAL: sizes.local_base}
    return {
        # Both the fields of the first releases and the newer ones, so that any version of transformers reads it.
        "layer_types": _kinds(sizes.layers, every),
        EVERY: every,
        # Without a window no block is local: any valid width may be written.
        "local_attention": 2 * sizes.window or 128,
        "rope_parameters": {kind: {**DEFAULT, "rope_theta": base} for kind, base in bases.items()},
        **{BASES[kind][0]: base for kind, base in bases.items()},
        **dict.fromkeys(BIASES, False),
        **dict.fromkeys(IDS),
        "classifier_activation": activation_name(sizes.pooling),
        "classifier_pooling": "mean" if sizes.summary == "mean" else "cls",
        "embedding_dropout": sizes.dropout,
    }


def _head(bert_prefix: str) -> Names:
    return (("head.dense.", f"{bert_prefix}.dense."), ("head.norm.", f"{bert_prefix}.LayerNorm."))


FAMILY = Family(
    types=("modernbert",),
    name="ModernBert",
    backbone="model",
    values={
        "segments": 0,
        "positions": "rotary",
        "normalization": "pre",
        "gated": True,
        "first_norm": False,
        "biases": False,
        "head_biases": False,
        "head_transform": True,
        "scaled_outputs": True,
    },
    varies=(
        *("activation", "pooling", "summary"),
        *("window", "global_every", "rotary_base", "local_base"),
    ),
    fits=lambda sizes: sizes.pooling == sizes.activation and sizes.summary in ("token", "mean"),
    fields={
        "hidden_act": "hidden_activation",
        "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "norm_eps",
    },
    without=("type_vocab_size", "position_embedding_type"),
    only={"is_decoder": False, "decoder_bias": True, "tie_word_embeddings": True},
    defaults={"hidden_activation": "gelu", "mlp_dropout": 0.0, "attention_dropout": 0.0, "norm_eps": 1e-5},
    read=_read,
    written=_config_fields,
    tensors=(
        ("embeddings.tok_embeddings.", "embeddings.word_embeddings."),
        ("embeddings.norm.", "embeddings.LayerNorm."),
        ("final_norm.", "encoder.LayerNorm."),
        (".attn.Wo.", ".attention.output.dense."),
        (".attn_norm.", ".attention.output.LayerNorm."),
        (".mlp_norm.", ".output.LayerNorm."),
        (".mlp.Wo.", ".output.dense."),
        ("layers.", "encoder.layer."),
    ),
    heads={
        "mlm": (
            *_head("cls.predictions.transform"),
            ("decoder.bias", "cls.predictions.bias"),
            ("decoder.", "cls.predictions.decoder."),
        ),
        "sequence": _head("pooler"),
        "choice": _head("pooler"),
        "tokens": _head("cls.transform"),
        "span": (*_head("cls.transform"), ("classifier.", "qa_outputs.")),
    },
    fused={
        ".attn.Wqkv.": (".attention.self.query.", ".attention.self.key.", ".attention.self.value."),
        # Their Wi stacks the activated half first, then the gate.
        ".mlp.Wi.": (".intermediate.dense.", ".intermediate.gate."),
    },
    halves=True,
)
