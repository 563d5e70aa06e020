"""GPT (Radford et al. 2018): BERT's blocks with causal attention, without segments and norm of the embeddings.

The "gelu" of its configs is the tanh approximation. Otherwise its files are like GPT-2's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import Family, Problem
from osbert_lab.autoregressive import gpt2

CURVES = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


def _read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    curve = config.get("afn", "gelu")
    if not isinstance(curve, str) or curve not in CURVES:
        problem(f"afn is {curve!r}; known are {', '.join(CURVES)}.")
        return {}
    return gpt2.one_dropout(config, problem) | {"activation": CURVES[curve]}


FAMILY = Family(
    types=("openai-gpt",),
    name="OpenAIGPT",
    backbone="transformer",
    values=gpt2.VALUES,
    varies=("activation",),
    fits=lambda sizes: sizes.activation in CURVES.values() and sizes.feedforward in (0, 4 * sizes.width),
    fields=gpt2.FIELDS,
    without=(*gpt2.WITHOUT, "hidden_act"),
    defaults=gpt2.DEFAULTS,
    only=gpt2.SUMMARY,
    read=_read,
    written=lambda sizes: {
        "afn": next(name for name, activation in CURVES.items() if activation == sizes.activation),
        "embd_pdrop": sizes.dropout,
    },
    tensors=(
        *gpt2.BLOCK,
        ("tokens_embed.", "embeddings.word_embeddings."),
        ("positions_embed.", "embeddings.position_embeddings."),
        ("h.", "encoder.layer."),
    ),
    fused=gpt2.FUSED,
    transposed=gpt2.TRANSPOSED,
    buffers=("position_ids", *gpt2.BUFFERS),
    heads={"choice": gpt2.CHOICES},
    classes={"choice": gpt2.CHOICE},
    causal="LMHeadModel",
)
