"""Gives a trained learner more pieces: each new row starts at the mean of the old pieces that spelt the word."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead


@torch.no_grad()
def add_pieces(learner: Learner, spellings: Sequence[Sequence[int]]) -> None:
    """Add a row for each of `spellings`, the ids of the old pieces that spelt the new one, behind the old rows.

    Embeddings, and with them the tied output embeddings, and the biases and tables of masked-language heads. Make the
    optimiser after this: the weights are new tensors.
    """
    backbone = learner.backbone
    pieces = backbone.embedding
    if pieces is None:
        raise ValueError(f"the family {backbone.architecture.family} has no piece embeddings to add to")
    pieces.weight = nn.Parameter(_with_means(pieces.weight, spellings))
    pieces.num_embeddings = len(pieces.weight)
    backbone.architecture = backbone.architecture.changed(vocabulary=len(pieces.weight))
    for head in learner.heads.values():
        if isinstance(head, MaskedLanguageHead):
            bias = _with_means(head.bias, spellings)
            head.bias = nn.Parameter(bias) if isinstance(head.bias, nn.Parameter) else bias
            if head.table is not None:
                head.table.weight = nn.Parameter(_with_means(head.table.weight, spellings))


def _with_means(rows: Tensor, spellings: Sequence[Sequence[int]]) -> Tensor:
    """Return `rows` (V, ...) with the mean of rows[spelling] for each spelling behind them."""
    means = [rows[list(spelling)].mean(dim=0, keepdim=True) for spelling in spellings]
    return torch.cat([rows, *means])
