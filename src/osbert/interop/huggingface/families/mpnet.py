"""MPNet (Song et al. 2020): learned positions, and a bias for each of 32 buckets of distances, shared by all layers.

Positions begin at 2 and there are 32 buckets, whatever the config says, so configs with other values are rejected.
The masked-LM head always has GELU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import CLASSIFIER, Family, Problem

FIRST, BUCKETS = 2, 32
"""Positions begin behind the padding's id, 1, as in fairseq; distances have 32 buckets, as in T5."""


def _length(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    table_rows = config.get("max_position_embeddings")
    # Their table also counts the FIRST unused rows at its beginning.
    return {"length": table_rows - FIRST} if isinstance(table_rows, int) else {}


FAMILY = Family(
    types=("mpnet",),
    name="MPNet",
    values={"segments": 0, "first_position": FIRST, "distance_scores": BUCKETS},
    varies=(),
    always_gelu=True,
    fits=lambda sizes: True,
    without=("type_vocab_size", "position_embedding_type"),
    only={
        "is_decoder": False,
        "tie_word_embeddings": True,
        "relative_attention_num_buckets": BUCKETS,
        "pad_token_id": FIRST - 1,
    },
    read=_length,
    written=lambda sizes: {
        "pad_token_id": FIRST - 1,
        "max_position_embeddings": sizes.length + FIRST,
        "relative_attention_num_buckets": BUCKETS,
    },
    tensors=(
        (".attention.attn.q.", ".attention.self.query."),
        (".attention.attn.k.", ".attention.self.key."),
        (".attention.attn.v.", ".attention.self.value."),
        (".attention.attn.o.", ".attention.output.dense."),
        (".attention.LayerNorm.", ".attention.output.LayerNorm."),
        ("lm_head.dense.", "cls.predictions.transform.dense."),
        ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
        ("lm_head.decoder.", "cls.predictions.decoder."),
        ("lm_head.bias", "cls.predictions.bias"),
    ),
    heads=CLASSIFIER,
)
