"""What a trained encoder gains for a task: adapters and recurrent layers, and further pieces.

The row of a new piece is the mean of the pieces that spelt the word before, or random.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from osbert.errors import UserError
from osbert.models.contract import Backbone, Learner, Sizes
from osbert.models.families.transformer import Transformer
from osbert.models.heads.predictions import MaskedLanguageHead
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


@torch.no_grad()
def add_pieces(learner: Learner, spellings: Sequence[Sequence[int]]) -> None:
    """Append a row for each of `spellings`, the ids of the old pieces that spell the new one.

    This changes the embeddings (and tied output embeddings), and the biases and tables of masked-language heads. Create
    the optimiser afterwards: the weights are new tensors.
    """

    def append_means(rows: Tensor) -> Tensor:
        return torch.cat([rows, *(rows[list(spelling)].mean(dim=0, keepdim=True) for spelling in spellings)])

    if spellings:
        _change_rows(learner, append_means)


@torch.no_grad()
def draw_pieces(learner: Learner, first: int, count: int) -> None:
    """Reinitialise the rows [first, first + count) of the tensors that `add_pieces` changes: GPT's pieces for a task.

    Tables are drawn from N(0, deviation) with torch's generator, biases are 0. Missing rows are appended.
    """
    deviation = learner.backbone.architecture.deviation

    def redraw(rows: Tensor) -> Tensor:
        new = rows.new_zeros(count, *rows.shape[1:])
        return torch.cat([rows[:first], new.normal_(0, deviation) if rows.ndim > 1 else new, rows[first + count :]])

    _change_rows(learner, redraw)


def _change_rows(learner: Learner, changed: Callable[[Tensor], Tensor]) -> None:
    """Replace the piece embeddings, and the biases and tables of masked-language heads, each (V, ...)."""
    if (pieces := learner.backbone.embedding) is None:
        raise UserError(
            f"A model of the family {learner.backbone.architecture.family} gets no more pieces: it has no embeddings "
            "of them. Train it with a tokenizer that has special pieces around texts, such as one of words.",
            code="unsupported-model",
        )
    rows = changed(pieces.weight)
    pieces.weight, pieces.num_embeddings = nn.Parameter(rows), len(rows)
    learner.backbone.architecture = learner.backbone.architecture.replace(vocabulary=len(rows))
    for companion in learner.companions.values():  # their table is the backbone's
        sizes = companion.backbone.architecture
        companion.backbone.architecture = sizes.replace(vocabulary=len(rows))
    for head in (head for model in (learner, *learner.companions.values()) for head in model.heads.values()):
        if isinstance(head, MaskedLanguageHead):
            bias = changed(head.bias)
            head.bias = nn.Parameter(bias) if isinstance(head.bias, nn.Parameter) else bias
            if head.table is not None:
                head.table.weight = nn.Parameter(changed(head.table.weight))
