"""ELECTRA (Clark et al. 2020): embeddings that may be narrower, and no pooler.

Where embedding_size is hidden_size, it differs from BERT in its classifier alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osbert.interop.huggingface.family import CLASSES, CLASSIFIER, Family, Problem


def embedding(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """Return the width of the embeddings, if they are narrower than the states; absent, it is 128."""
    width = config.get("embedding_size", 128)
    if not isinstance(width, int):
        problem(f"embedding_size must be a whole number, but is {width!r}.")
    elif width != config.get("hidden_size"):
        return {"embedding": width}
    return {}


FAMILY = Family(
    types=("electra",),
    name="Electra",
    values={"pooling": "gelu"},
    varies=("segments", "embedding"),
    without=("embedding_size",),
    only={"is_decoder": False, "summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
    always_gelu=True,
    read=embedding,
    written=lambda sizes: {"embedding_size": sizes.embedding or sizes.width},
    tensors=(
        ("generator_predictions.dense.", "cls.predictions.transform.dense."),
        ("generator_predictions.LayerNorm.", "cls.predictions.transform.LayerNorm."),
        ("generator_lm_head.bias", "cls.predictions.bias"),
        ("generator_lm_head.", "cls.predictions.decoder."),
    ),
    heads={**CLASSIFIER, "choice": (("sequence_summary.summary.", "pooler.dense."),)},
    classes={**CLASSES, "replaced": "ForPreTraining"},
)
