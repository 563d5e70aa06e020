"""Sparse models (SPLADE) of sentence-transformers: the files of its SparseEncoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osbert.errors import UserError
from osbert.guarded import read_if_there

PART = "SpladePooling"
PACKAGE = "sentence_transformers.sparse_encoder.models"
TRANSFORMER = "MLMTransformer"
"""Their older name of a Transformer that computes logits of pieces, which newer versions read, too."""
TASK = "fill-mask"
"""Their name of what it computes, in the settings of a Transformer."""
MODEL_TYPE = {"model_type": "SparseEncoder"}
"""What the settings of a folder call it."""
POOLINGS = {
    "splade": ("max", "relu"),
    "splade_sum": ("sum", "relu"),
    "splade_log": ("max", "log1p_relu"),
    "splade_log_sum": ("sum", "log1p_relu"),
}
"""Our names of poolings, with their pooling_strategy and activation_function."""


def read_pooling(folder: Path) -> str:
    """Return our name of the pooling in a folder of a SpladePooling. Raises UserError for values that osbert lacks."""
    path = folder / "config.json"
    config = read_if_there(path)
    values = (config.get("pooling_strategy", "max"), config.get("activation_function", "relu"))
    for name, (strategy, activation) in POOLINGS.items():
        if values == (strategy, activation):
            return name
    raise UserError(
        f"{path}: the pooling_strategy {values[0]!r:.40} with the activation_function {values[1]!r:.40} is not "
        "supported; osbert has max and sum with relu and log1p_relu.",
        code="unsupported-model",
    )


def pooling_config(pooling: str) -> dict[str, str]:
    """Return the settings of a SpladePooling, as sentence-transformers reads them."""
    strategy, activation = POOLINGS[pooling]
    return {"pooling_strategy": strategy, "activation_function": activation}


def refuse_unsupported(settings: Mapping[str, Any], path: Path) -> None:
    """Raise UserError if the settings of a sparse model ask for something that osbert lacks."""
    similarity = settings.get("similarity_fn_name") or "dot"
    if similarity != "dot":
        raise UserError(
            f"{path}: the similarity_fn_name {similarity!r:.40} is not supported; osbert compares sparse vectors by "
            "their dot product.",
            code="unsupported-model",
        )
    if (largest := settings.get("max_active_dims")) is not None:
        raise UserError(
            f"{path}: max_active_dims {largest!r:.40} keeps the largest weights alone, which osbert does not do. Set "
            "it to null for all.",
            code="unsupported-model",
        )
