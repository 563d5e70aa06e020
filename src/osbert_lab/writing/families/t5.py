"""T5 and T5 1.1 (Raffel et al. 2020): an encoder and a decoder, with learned biases of distances as positions.

Its scores are not divided by sqrt(K), so query matrices are multiplied by it when read. The first release multiplies
the states, divided by sqrt(D), with the piece embeddings; 1.1 has an output table of its own. transformers 5
writes tie_word_embeddings = true for both; there scale_decoder_outputs = false means 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from osbert.interop.huggingface.family import ACTIVATIONS, Family, Names, Problem, activation_name
from osbert.models.architecture import Architecture
from osbert_lab.writing.families.pair_names import pair_names
from osbert_lab.writing.pair_architecture import PairArchitecture

GATED = "gated-"
TABLE, PIECES = "lm_head.weight", "shared.weight"
SELF, CROSS = "layer.0.SelfAttention.", "layer.1.EncDecAttention."
WHOLE = {"d_kv": "head_width", "num_decoder_layers": "decoder_layers", "relative_attention_num_buckets": "distances"}
VALUES = {
    "segments": 0,
    "positions": "none",
    "normalization": "pre",
    "root_norm": True,
    "biases": False,
    "embedding_norm": False,
    "pooling": "none",
    "summary": "mean",
    "piece_transform": False,
}


def _read_activation(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    curve = str(config.get("feed_forward_proj", "relu"))
    gated = curve.startswith(GATED)
    name = "gelu_new" if curve == "gated-gelu" else curve.removeprefix(GATED)  # as in their T5Config
    if name not in ACTIVATIONS:
        problem(f"feed_forward_proj is {curve!r}; known are {', '.join(ACTIVATIONS)}, each also after {GATED!r}.")
    settings = {"gated": gated, "activation": ACTIVATIONS.get(name)}
    # Two fields that override feed_forward_proj in transformers.
    overriding = {
        "is_gated_act": config.get("is_gated_act", gated),
        "dense_act_fn": ACTIVATIONS.get(str(config.get("dense_act_fn", name))),
    }
    for (field, value), setting in zip(overriding.items(), settings.values(), strict=True):
        if value != setting:
            problem(f"{field} is {config[field]!r}, which contradicts feed_forward_proj, {curve!r}.")
    return settings


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    settings = _read_activation(config, problem)
    numbers = {}
    for field, setting in WHOLE.items():
        value = config.get(field)
        if value is None:
            value = {"d_kv": 64, "relative_attention_num_buckets": 32}.get(field, 0)
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            problem(f"{field} must be a whole number of 1 or more, but is {value!r}.")
            return settings
        numbers[setting] = value
    if (buckets := numbers["distances"]) % 4 or buckets > 256:
        problem(f"relative_attention_num_buckets is {buckets}; only multiples of 4 up to 256 are supported.")
    width, heads, layers = (config.get(name) for name in ("d_model", "num_heads", "num_layers"))
    even = isinstance(width, int) and isinstance(heads, int) and heads > 0 and width == heads * numbers["head_width"]
    # A config that names a piece before texts is of a tokenizer in BERT's form: see
    # `starting_piece` (text/file_tokenizer.py).
    begun = ("eos_token_id", 1) if config.get("bos_token_id") is not None else ("pad_token_id", 0)
    if config.get("decoder_start_token_id", begun[1]) != config.get(*begun):
        problem(f"decoder_start_token_id is not {begun[0]}, with which a text of its tokenizer's form starts.")
    tied = config.get("tie_word_embeddings") is not False
    rate = config.get("dropout_rate")
    return settings | {
        "head_width": 0 if even else numbers["head_width"],
        "decoder_layers": 0 if numbers["decoder_layers"] == layers else numbers["decoder_layers"],
        "distance_scores": buckets,
        "tied": tied and not _may_be_untied(config),
        "scaled_pieces": bool(config.get("scale_decoder_outputs", tied)),
        **({} if "attention_dropout" in config else {"attention_dropout": 0.1 if rate is None else rate}),
    }


def _may_be_untied(config: Mapping[str, Any]) -> bool:
    """Return whether transformers 5 saved a T5 1.1, with tie_word_embeddings = true whatever tables the file has."""
    return config.get("scale_decoder_outputs") is False and "transformers_version" in config


def _with_table(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Mapping[str, Tensor]:
    """Return the tensors, with the piece embeddings as output table if an untied model's file has none."""
    untied = config.get("tie_word_embeddings") is False or _may_be_untied(config)
    if not untied or TABLE in tensors or PIECES not in tensors:
        return tensors
    return {**tensors, TABLE: tensors[PIECES].clone()}


def _config_fields(sizes: Architecture) -> dict[str, Any]:
    assert isinstance(sizes, PairArchitecture)
    # Their "gated-gelu" is the curve's tanh form.
    curve = "gelu" if sizes.gated and sizes.activation == "gelu_tanh" else activation_name(sizes.activation)
    apart = {} if sizes.attention_dropout == sizes.dropout else {"attention_dropout": sizes.attention_dropout}
    return {
        **apart,
        "d_kv": sizes.key_width,
        "num_decoder_layers": sizes.decoder_layers or sizes.layers,
        "relative_attention_num_buckets": sizes.distance_scores,
        "relative_attention_max_distance": 128,
        "feed_forward_proj": GATED * sizes.gated + curve,
        "tie_word_embeddings": sizes.tied,
        "scale_decoder_outputs": sizes.scaled_pieces,
        "is_encoder_decoder": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }


def _tensors() -> Iterator[tuple[str, str]]:
    parts = {"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"}
    for side in ("encoder", "decoder"):
        last = 1 if side == "encoder" else 2
        their, bert_prefix = f"{side}.block.#.", f"{side}.layer.#."
        for part, name in parts.items():
            yield f"{their}{SELF}{part}.", f"{bert_prefix}attention.{name}."
            if side == "decoder":
                yield f"{their}{CROSS}{part}.", f"{bert_prefix}crossattention.{name}."
        yield f"{their}layer.0.layer_norm.", f"{bert_prefix}attention.output.LayerNorm."
        if side == "decoder":
            yield f"{their}layer.1.layer_norm.", f"{bert_prefix}crossattention.output.LayerNorm."
        feed = f"{their}layer.{last}.DenseReluDense."
        yield f"{feed}wi.", f"{bert_prefix}intermediate.dense."
        yield f"{feed}wi_0.", f"{bert_prefix}intermediate.first."
        yield f"{feed}wi_1.", f"{bert_prefix}intermediate.gate."
        yield f"{feed}wo.", f"{bert_prefix}output.dense."
        yield f"{their}layer.{last}.layer_norm.", f"{bert_prefix}output.LayerNorm."
        yield f"{side}.block.0.{SELF}relative_attention_bias.", f"{side}.relative_attention_bias."
        yield f"{side}.final_layer_norm.", f"{side}.LayerNorm."
    yield "shared.", "embeddings.word_embeddings."
    yield "lm_head.", "cls.predictions.decoder."


TENSORS: Names = tuple(_tensors())

FAMILY = Family(
    types=("t5",),
    name="T5",
    sizes=PairArchitecture,
    parameters=pair_names,
    bare=True,
    values=VALUES,
    varies=("activation", "gated", "head_width", "decoder_layers", "distance_scores", "tied", "scaled_pieces"),
    fits=lambda sizes: sizes.distance_scores > 0 and (sizes.tied or not sizes.scaled_pieces),
    fields={
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "intermediate_size": "d_ff",
        "max_position_embeddings": "n_positions",
        "hidden_dropout_prob": "dropout_rate",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "layer_norm_epsilon",
    },
    defaults={"d_kv": 64, "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6, "n_positions": 512},
    without=(
        *("type_vocab_size", "position_embedding_type", "hidden_act", "is_decoder", "is_encoder_decoder"),
        "attention_probs_dropout_prob",
    ),
    only={"is_decoder": False, "is_encoder_decoder": True, "relative_attention_max_distance": 128},
    read=_read,
    prepare=_with_table,
    written=_config_fields,
    tensors=TENSORS,
    rooted=(".attention.self.query.", ".crossattention.self.query."),
    buffers=("embed_tokens.weight",),
    classes={"mlm": "ForConditionalGeneration", "text": "ForConditionalGeneration"},
)
