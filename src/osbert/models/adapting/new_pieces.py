"""Gives a trained model more pieces: a new row is the mean of the old pieces that spelt the word, or is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from osbert.models.contract import Backbone, Learner
from osbert.models.heads.predictions import MaskedLanguageHead


@torch.no_grad()
def add_pieces(learner: Learner, spellings: Sequence[Sequence[int]]) -> None:
    """Add a row for each of `spellings`, the ids of the old pieces that spelt the new one, behind the old rows.

    Embeddings, and with them the tied output embeddings, and the biases and tables of masked-language heads. Make the
    optimiser after this: the weights are new tensors.
    """
    rows = _with_means(_pieces(learner.backbone).weight, spellings)
    _set_pieces(learner.backbone, rows)
    for companion in learner.companions.values():  # their table is the backbone's
        sizes = companion.backbone.architecture
        companion.backbone.architecture = sizes.changed(vocabulary=len(rows))
    for head in (head for one in (learner, *learner.companions.values()) for head in one.heads.values()):
        if isinstance(head, MaskedLanguageHead):
            bias = _with_means(head.bias, spellings)
            head.bias = nn.Parameter(bias) if isinstance(head.bias, nn.Parameter) else bias
            if head.table is not None:
                head.table.weight = nn.Parameter(_with_means(head.table.weight, spellings))


@torch.no_grad()
def draw_pieces(backbone: Backbone, first: int, count: int) -> None:
    """Draw the rows [first, first + count) of the piece embeddings afresh, from N(0, deviation), as GPT's for a task.

    Rows that are not there yet are added. Random numbers are from torch's generator.
    """
    rows = _pieces(backbone).weight
    drawn = torch.empty(count, rows.shape[1]).normal_(0, backbone.architecture.deviation)
    _set_pieces(backbone, torch.cat([rows[:first], drawn, rows[first + count :]]))


def _pieces(backbone: Backbone) -> nn.Embedding:
    if backbone.embedding is None:
        raise ValueError(f"the family {backbone.architecture.family} has no piece embeddings to add to")
    return backbone.embedding


def _set_pieces(backbone: Backbone, rows: Tensor) -> None:
    """Replace the piece embeddings by `rows` (V, D')."""
    pieces = _pieces(backbone)
    pieces.weight, pieces.num_embeddings = nn.Parameter(rows), len(rows)
    backbone.architecture = backbone.architecture.changed(vocabulary=len(rows))


def _with_means(rows: Tensor, spellings: Sequence[Sequence[int]]) -> Tensor:
    """Return `rows` (V, ...) with the mean of rows[spelling] for each spelling behind them."""
    means = [rows[list(spelling)].mean(dim=0, keepdim=True) for spelling in spellings]
    return torch.cat([rows, *means])
