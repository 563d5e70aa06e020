"""The contrastive loss of few-shot learning: pulls vectors of one label together, pushes others apart (SetFit)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch
from osbert.models.contract import Backbone, Head, Loss, States


class SameClassHead(Head):
    """Pooled states -> the cosine of each pair, with the target 1 for two texts of one label and 0 for others.

    SetFit (Tunstall et al. 2022, section 3.1) samples pairs of texts; here the loss is over all pairs of a step, which
    is one pass, so each text is encoded once for many pairs. Equal and unequal pairs have the same total weight. The
    head has no weights, and uses the targets of another head on the same states.
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
        """Return the squared error of the cosines: the mean over equal pairs plus the mean over unequal pairs.

        It is multiplied by the M sequences and has the count M. A pass with one sequence has no pairs, and loss 0.
        """
        target = batch.targets[self.target]
        vectors = self.outputs(states, batch)[target.index]  # (M, D)
        cosines = vectors @ vectors.T
        same = (target.labels[:, None] == target.labels).float()
        above = vectors.new_ones(same.shape).triu(diagonal=1)  # each pair once, none with itself
        errors = (cosines - same).square()
        like, unlike = ((errors * kind).sum() / kind.sum().clamp_min(1) for kind in (same * above, (1 - same) * above))
        return Loss(total=(like + unlike) * len(vectors), count=float(len(vectors)))
