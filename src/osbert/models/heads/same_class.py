"""The contrastive loss of few-shot learning: texts of one label get like vectors, others unlike ones (SetFit)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head, Loss, States


class SameClassHead(Head):
    """Pooled states -> the cosine of each two, which is to be 1 for two of one label and 0 for others.

    SetFit (Tunstall et al. 2022, section 3.1) draws pairs of texts; here all pairs of a step, which is one pass, count,
    so that each text is encoded once for many pairs. Like and unlike pairs weigh the same, whatever their numbers. It
    has no weights and learns from the targets of another head, which stands on the same states.
    """

    sparse = True

    def __init__(self, backbone: Backbone, *, target: str) -> None:
        """Stand on `backbone`; learn from the batch's targets `target`, a class each."""
        super().__init__()
        self.target = target

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the vector (B, D) of every sequence, of length 1."""
        return functional.normalize(states.pooled.float(), dim=-1)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the squared error of the cosines: the mean over like pairs plus that over unlike pairs.

        The sum that it is given as is over M sequences. A pass with a lone sequence has no pairs and a loss of 0.
        """
        target = batch.targets[self.target]
        vectors = self.outputs(states, batch)[target.index]  # (M, D)
        cosines = vectors @ vectors.T
        same = (target.labels[:, None] == target.labels).float()
        above = vectors.new_ones(same.shape).triu(diagonal=1)  # each pair once, none with itself
        errors = (cosines - same).square()
        like, unlike = ((errors * kind).sum() / kind.sum().clamp_min(1) for kind in (same * above, (1 - same) * above))
        return Loss(total=(like + unlike) * len(vectors), count=float(len(vectors)))
