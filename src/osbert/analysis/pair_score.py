"""The score of a pair whose texts are read apart, parted between the two so that each has words with weights.

Such a score F(u, v) is no sum of something of each text. Its part for one text is the Shapley value of a game of two
players (Shapley 1953): half of what the text adds beside the whole other one, and half of what it adds beside a text
without words. The parts of both sum to F, and along the line of integrated gradients each depends on one text alone.
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
from osbert.models.heads.apart import ApartHead
from osbert.models.pooling import pair_blocks


class PairScore:
    """A weighted sum of the scores of pairs, whose two texts are examples that follow each other.

    `weights`: for each example those (K,) of the scores of its pair. `meet` comes before the first call.
    """

    def __init__(self, learner: Learner, head: ApartHead, weights: Sequence[NDArray[np.floating]]) -> None:
        """Take the head that compares the texts."""
        self.learner = learner
        self.head = head
        self.weights = torch.from_numpy(np.stack(weights)).double()  # (E, K)
        self.ends = torch.empty(0)

    def meet(self, line: Interpolation) -> None:
        """Read every text whole and without its words: what the other one of its pair is compared with."""
        reading = replace(line, score=self._vectors)
        places = range(len(line.examples))
        whole, empty = (reading.scores([line.at(place, part) for place in places]) for part in (1.0, 0.0))
        self.ends = torch.from_numpy(np.stack([whole, empty]))  # (2, E, D)

    def __call__(self, batch: Batch) -> Tensor:
        """Return the part (B,) that each text of a batch has in the score of its pair."""
        places = batch.records.cpu()
        others = places ^ 1  # examples 0 and 1 are a pair, 2 and 3
        vectors = self._vectors(batch).double()
        ends = self.ends.to(vectors.device)
        beside = [self._scored(vectors, end[others], places) for end in ends]
        alone = [self._scored(ends[own, places], ends[1 - own, others], places) for own in (0, 1)]
        # What both parts have too much of F(whole, empty) and F(empty, whole), a half of each.
        return (sum(beside, torch.zeros(())) - sum(alone, torch.zeros(())) / 2) / 2

    def _vectors(self, batch: Batch) -> Tensor:
        states = self.learner.states(batch, self.learner.backbone.readable(batch))
        return self.head.outputs(states, batch)

    def _scored(self, own: Tensor, other: Tensor, places: Tensor) -> Tensor:
        """Return the scores (B,) of pairs of vectors, of which a text's own is the first or the second by its place."""
        second = (places % 2 == 1).to(own.device)[:, None]
        blocks = torch.cat(pair_blocks(torch.where(second, other, own), torch.where(second, own, other)), dim=1)
        layer = self.head.linear
        scores = blocks @ layer.weight.double().T + layer.bias.double()  # (B, K)
        return (scores * self.weights[places].to(own.device)).sum(dim=1)
