"""The score of a pair of separately encoded texts, split between the two, so that the words of each get weights.

Such a score F(u, v) is no sum of one term for each text. The part of a text is its Shapley value in a game of two
players (Shapley 1953): half of what the text adds beside the whole other text, plus half of what it adds beside a text
without words. The two parts sum to F. Along the line of integrated gradients each part depends on one text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.analysis.interpolation import Interpolation
from osbert.data.batch import Batch
from osbert.models.contract import Learner
from osbert.models.forms import pair_blocks
from osbert.models.heads.contrastive import ApartHead
from osbert.models.module_copy import copy_modules


class PairScore:
    """A weighted sum of the scores of pairs. The two texts of a pair are consecutive examples.

    `weights`: for each example the weights (K,) of the scores of its pair. Call `meet` before the first call.
    """

    def __init__(self, head: ApartHead, weights: Sequence[NDArray[np.floating]]) -> None:
        """Use the head that compares the vectors of two texts."""
        self.head = copy_modules(head)  # without gradients for its weights
        self.weights = torch.from_numpy(np.stack(weights)).double()  # (E, K)
        self.ends = torch.empty(0, dtype=torch.float64)

    def meet(self, line: Interpolation) -> None:
        """Compute the vector of every text with all words and with none, for the partner in its pair."""
        reading = replace(line, score=self._vectors)
        indices = range(len(line.examples))
        whole, empty = (reading.scores([line.at(index, part) for index in indices]) for part in (1.0, 0.0))
        self.ends = torch.from_numpy(np.stack([whole, empty]))  # (2, E, D)

    def __call__(self, learner: Learner, batch: Batch) -> Tensor:
        """Return the part (B,) of each text of a batch in the score of its pair."""
        indices = batch.records.cpu()
        others = indices ^ 1  # examples 0 and 1 are a pair, 2 and 3
        vectors = self._vectors(learner, batch).double()
        ends = self.ends.to(vectors.device)
        # F(x, whole other) and F(x, empty other), each (B,).
        beside = [self._score_pairs(vectors, end[others], indices) for end in ends]
        alone = [
            self._score_pairs(ends[end_index, indices], ends[1 - end_index, others], indices) for end_index in (0, 1)
        ]
        # What both parts have too much of F(whole, empty) and F(empty, whole), a half of each.
        return (beside[0] + beside[1] - (alone[0] + alone[1]) / 2) / 2

    def _vectors(self, learner: Learner, batch: Batch) -> Tensor:
        states = learner.states(batch, learner.backbone.readable(batch))
        return self.head.outputs(states, batch)

    def _score_pairs(self, vectors: Tensor, partners: Tensor, indices: Tensor) -> Tensor:
        """Return the scores (B,) of pairs of vectors; `vectors` is the first text of its pair if its index is even."""
        second = (indices % 2 == 1).to(vectors.device)[:, None]
        # The head is not symmetric: put both vectors into the order of the pair.
        blocks = torch.cat(
            pair_blocks(torch.where(second, partners, vectors), torch.where(second, vectors, partners)), dim=1
        )
        layer = self.head.linear
        scores = blocks @ layer.weight.double().T + layer.bias.double()  # (B, K)
        return (scores * self.weights[indices].to(vectors.device)).sum(dim=1)
