"""Layers that an encoder gains for a task: adapters and recurrent layers."""

from __future__ import annotations

import dataclasses

from osbert.models.contract import Backbone, Sizes
from osbert.models.families.transformer import Transformer
from osbert.models.transformer.added_layers import Adapter, Recurrent


def adjust_sizes(sizes: Sizes, *, dropout: float, recurrent: int = 0, adapters: int = 0) -> Sizes:
    """Return the settings of an encoder for fine-tuning, with new dropout rates and the added layers that are not 0.

    Raises ValueError if its family has no such layers.
    """
    known = {field.name for field in dataclasses.fields(sizes)}  # type: ignore[arg-type]
    layers = {name: value for name, value in (("recurrent", recurrent), ("adapters", adapters)) if value}
    if missing := [f"{name} is {value}" for name, value in layers.items() if name not in known]:
        raise ValueError(f"{' and '.join(missing)}, but the family {sizes.family} has no such layers")
    return sizes.replace(**{name: dropout for name in ("dropout", "attention_dropout") if name in known}, **layers)


def add_recurrent(backbone: Backbone, sizes: Sizes) -> str:
    """Add new recurrent layers on top if `sizes` differs from the encoder in them; return a remark, or ""."""
    current_layers, wanted = (settings.recurrent for settings in (backbone.architecture, sizes))
    if current_layers == wanted or not isinstance(backbone, Transformer):
        return ""
    backbone.recurrent = Recurrent(sizes.width, wanted, dropout=sizes.dropout)
    return f"the bidirectional LSTM on top is newly initialised (recurrent = {wanted})"


def add_adapters(backbone: Backbone, sizes: Sizes) -> str:
    """Add new adapters to all blocks if `sizes` differs from the encoder in them; return a remark, or ""."""
    current_width, wanted = (settings.adapters for settings in (backbone.architecture, sizes))
    if current_width == wanted or not isinstance(backbone, Transformer):
        return ""
    for block in backbone.blocks:
        block.attention_adapter, block.feedforward_adapter = (Adapter(sizes.width, wanted) for _ in range(2))
    return f"adapters of width {wanted} in its blocks are newly initialised"
