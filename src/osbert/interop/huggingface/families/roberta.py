"""RoBERTa (Liu et al. 2019), XLM-R (Conneau et al. 2020) and CamemBERT.

The masked-LM head has GELU whatever the blocks have. Positions begin behind the padding's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import CLASSIFIER, Family, Problem


def _positions(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    pad, table_rows = config.get("pad_token_id", 1), config.get("max_position_embeddings")
    if not isinstance(pad, int) or pad < 0:
        problem(f"pad_token_id must be a whole number, since positions begin behind it, but is {pad!r}.")
        return {}
    # fairseq numbers positions from pad_token_id + 1, so the table has that many unused rows.
    return {"first_position": pad + 1} | ({"length": table_rows - pad - 1} if isinstance(table_rows, int) else {})


FAMILY = Family(
    types=("roberta", "xlm-roberta", "camembert"),
    name="Roberta",
    varies=("segments", "first_position"),
    fits=lambda sizes: sizes.segments > 0 and sizes.first_position > 0,
    only={"is_decoder": False},
    always_gelu=True,
    read=_positions,
    written=lambda sizes: {
        "pad_token_id": sizes.first_position - 1,
        "max_position_embeddings": sizes.length + sizes.first_position,
    },
    tensors=(
        ("lm_head.dense.", "cls.predictions.transform.dense."),
        ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
        ("lm_head.decoder.", "cls.predictions.decoder."),
        ("lm_head.bias", "cls.predictions.bias"),
    ),
    heads=CLASSIFIER,
)
