"""GTE (mGTE, Zhang et al. 2024): BERT with rotary positions and gated layers, without biases in `up` and its gate.

The masked-LM head always has GELU.
"""

from __future__ import annotations

from functools import partial

from osbert.interop.huggingface.families.nomicbert import read_base, write_base
from osbert.interop.huggingface.family import CLASSES, Family

FAMILY = Family(
    types=("gte",),
    name="Gte",
    values={"positions": "rotary", "gated": True},
    varies=("segments", "rotary_base"),
    always_gelu=True,
    only={"is_decoder": False, "tie_word_embeddings": True},
    # transformers' defaults, which differ from BERT's: configs omit fields with default values.
    defaults={"attention_probs_dropout_prob": 0.0, "type_vocab_size": 1},
    read=partial(read_base, default=160_000.0),
    written=lambda sizes: {**write_base(sizes), "pad_token_id": 0},
    tensors=(
        (".attention.o_proj.", ".attention.output.dense."),
        (".attn_ln.", ".attention.output.LayerNorm."),
        (".mlp_ln.", ".output.LayerNorm."),
        (".mlp.down_proj.", ".output.dense."),
        ("lm_head.dense.", "cls.predictions.transform.dense."),
        ("lm_head.norm.", "cls.predictions.transform.LayerNorm."),
        ("lm_head.decoder.bias", "cls.predictions.bias"),
        ("lm_head.decoder.", "cls.predictions.decoder."),
    ),
    fused={
        ".attention.qkv_proj.": (".attention.self.query.", ".attention.self.key.", ".attention.self.value."),
        # up first, then the part that is activated: the reverse of our order.
        ".mlp.up_gate_proj.": (".intermediate.gate.", ".intermediate.dense."),
    },
    halves=True,
    classes={form: CLASSES[form] for form in ("tokens", "sequence", "mlm")},
)
