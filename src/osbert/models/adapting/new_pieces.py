"""Adds pieces to a trained model: a new row is the mean of the pieces that spelt the word before, or random."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from osbert.errors import UserError
from osbert.models.contract import Backbone, Learner
from osbert.models.heads.predictions import MaskedLanguageHead


@torch.no_grad()
def add_pieces(learner: Learner, spellings: Sequence[Sequence[int]]) -> None:
    """Append a row for each of `spellings`, the ids of the old pieces that spell the new one.

    This changes the embeddings (and tied output embeddings), and the biases and tables of masked-language heads. Create
    the optimiser afterwards: the weights are new tensors.
    """
    if spellings:
        _change_rows(learner, lambda rows: _with_means(rows, spellings))


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
    rows = changed(_pieces(learner.backbone).weight)
    _set_pieces(learner.backbone, rows)
    for companion in learner.companions.values():  # their table is the backbone's
        sizes = companion.backbone.architecture
        companion.backbone.architecture = sizes.replace(vocabulary=len(rows))
    for head in (head for model in (learner, *learner.companions.values()) for head in model.heads.values()):
        if isinstance(head, MaskedLanguageHead):
            bias = changed(head.bias)
            head.bias = nn.Parameter(bias) if isinstance(head.bias, nn.Parameter) else bias
            if head.table is not None:
                head.table.weight = nn.Parameter(changed(head.table.weight))


def _pieces(backbone: Backbone) -> nn.Embedding:
    if backbone.embedding is None:
        raise UserError(
            f"A model of the family {backbone.architecture.family} gets no more pieces: it has no embeddings of them. "
            "Train it with a tokenizer that has special pieces around texts, such as one of words.",
            code="unsupported-model",
        )
    return backbone.embedding


def _set_pieces(backbone: Backbone, rows: Tensor) -> None:
    """Replace the piece embeddings by `rows` (V, D')."""
    pieces = _pieces(backbone)
    pieces.weight, pieces.num_embeddings = nn.Parameter(rows), len(rows)
    backbone.architecture = backbone.architecture.replace(vocabulary=len(rows))


def _with_means(rows: Tensor, spellings: Sequence[Sequence[int]]) -> Tensor:
    """Return `rows` (V, ...) followed by the mean of rows[spelling] for each spelling."""
    means = [rows[list(spelling)].mean(dim=0, keepdim=True) for spelling in spellings]
    return torch.cat([rows, *means])
