"""BART (Lewis et al. 2020): an encoder and a decoder with learned positions, both of which read the text of a task.

The first two position embeddings are unused, as in RoBERTa. A task's head reads the decoder's state at the text's last
token. The scores of pieces have a bias that is not learned, and 0 in all published models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from osbert.interop.huggingface.family import CLASSES, Family, Names, Problem
from osbert.models.architecture import Architecture
from osbert_lab.writing.families.pair_names import pair_names
from osbert_lab.writing.pair_architecture import PairArchitecture

FIRST = 2
"""Number of unused position embeddings; the padding is then piece 1, as in RoBERTa."""
EPSILON = 1e-5
"""Epsilon of every norm, which has no config field."""
IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2}
"""The ids of the special pieces in RoBERTa's vocabulary, which BART uses."""
ABSENT = {"layers": 12, "attention_heads": 16, "ffn_dim": 4096}
"""The decoder's sizes if config.json has no field for them."""
VALUES = {
    "segments": 0,
    "first_position": FIRST,
    "epsilon": EPSILON,
    "piece_transform": False,
    "reading": "both",
    "summary": "last",
}


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = config.get(f"encoder_{name}"), config.get(f"decoder_{name}", ABSENT[name])
        if decoder != encoder:
            problem(f"decoder_{name} is {decoder!r} and encoder_{name} {encoder!r}; only equal ones are supported.")
    if config.get("decoder_start_token_id", 2) != config.get("eos_token_id", 2):
        problem("decoder_start_token_id is not eos_token_id, with which a text of BART starts.")
    above = config.get("decoder_layers", ABSENT["layers"])
    if isinstance(above, bool) or not isinstance(above, int) or above < 1:
        problem(f"decoder_layers must be a whole number of at least 1, but is {above!r}.")
        return {}
    return {"decoder_layers": 0 if above == config.get("encoder_layers") else above}


def _config_fields(sizes: Architecture) -> dict[str, Any]:
    assert isinstance(sizes, PairArchitecture)
    return {
        "decoder_layers": sizes.decoder_layers or sizes.layers,
        "decoder_attention_heads": sizes.heads,
        "decoder_ffn_dim": sizes.feedforward,
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        **IDS,
    }


def _tensors() -> Iterator[tuple[str, str]]:
    attention = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value", "out_proj": "output.dense"}
    # The decoder first: its names contain those of the encoder's embeddings, which would be replaced in them.
    for side in ("decoder", "encoder"):
        bart_prefix, bert_prefix, below = (
            f"{side}.layers.#.",
            f"{side}.layer.#.",
            "decoder." if side == "decoder" else "",
        )
        kinds = {"self_attn": "attention"} | ({"encoder_attn": "crossattention"} if side == "decoder" else {})
        for kind, name in kinds.items():
            for part, bert_part in attention.items():
                yield f"{bart_prefix}{kind}.{part}.", f"{bert_prefix}{name}.{bert_part}."
            yield f"{bart_prefix}{kind}_layer_norm.", f"{bert_prefix}{name}.output.LayerNorm."
        yield f"{bart_prefix}fc1.", f"{bert_prefix}intermediate.dense."
        yield f"{bart_prefix}fc2.", f"{bert_prefix}output.dense."
        yield f"{bart_prefix}final_layer_norm.", f"{bert_prefix}output.LayerNorm."
        yield f"{side}.embed_positions.", f"{below}embeddings.position_embeddings."
        yield f"{side}.layernorm_embedding.", f"{below}embeddings.LayerNorm."
    yield "shared.", "embeddings.word_embeddings."
    yield "lm_head.", "cls.predictions.decoder."


TENSORS: Names = tuple(_tensors())

FAMILY = Family(
    types=("bart",),
    name="Bart",
    sizes=PairArchitecture,
    parameters=pair_names,
    backbone="model",
    values=VALUES,
    varies=("activation", "decoder_layers"),
    fits=lambda sizes: sizes.epsilon == EPSILON,
    fields={
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "intermediate_size": "encoder_ffn_dim",
        "hidden_act": "activation_function",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "initializer_range": "init_std",
    },
    defaults={"dropout": 0.1, "attention_dropout": 0.0, "init_std": 0.02, "activation_function": "gelu"},
    without=("type_vocab_size", "position_embedding_type", "layer_norm_eps", "is_decoder", "is_encoder_decoder"),
    only=dict.fromkeys(("is_decoder", "scale_embedding", "normalize_before", "add_final_layer_norm"), False)
    | dict.fromkeys(("static_position_embeddings", "add_bias_logits"), False)
    | dict.fromkeys(("is_encoder_decoder", "tie_word_embeddings", "normalize_embedding"), True),
    read=_read,
    written=_config_fields,
    tensors=TENSORS,
    heads={
        "sequence": (("classification_head.out_proj.", "classifier."), ("classification_head.dense.", "pooler.dense."))
    },
    buffers=("embed_tokens.weight", "final_logits_bias"),
    classes={
        "sequence": CLASSES["sequence"],
        "span": CLASSES["span"],
        "mlm": "ForConditionalGeneration",
        "text": "ForConditionalGeneration",
    },
)
