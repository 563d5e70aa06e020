"""Many vectors a text (ColBERT): a projection of each token's state, and texts compared by MaxSim."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from osbert.data.batch import Batch
from osbert.data.examples import Examples
from osbert.data.late_interaction import LateInteraction, TokenVectors
from osbert.models.contract import Backbone, Head, Loss, States
from osbert.models.fast.linear import Linear
from osbert.models.heads.contrastive import Similarities, VectorComparison
from osbert.models.initialisation import initialise


class ColbertHead(Head):
    """States of tokens -> a vector (E,) of length 1 each; `Batch.head_words` are the tokens whose vectors count."""

    form = "vectors"
    pooling = "colbert"
    per_token = True

    def __init__(
        self,
        backbone: Backbone,
        *,
        comparison: VectorComparison,
        width: int,
        late: LateInteraction,
        skipped: tuple[str, ...],
    ) -> None:
        """Stand on `backbone`; `width` = E. `late`, `skipped`: how the texts are laid out."""
        super().__init__()
        self.late = late
        self.skipped = skipped
        self.comparison = comparison
        self.projection = Linear(backbone.architecture.width, width, bias=False)
        initialise(self, backbone.architecture.deviation)

    def token_vectors(self) -> TokenVectors:
        """Return how the model makes the vectors of tokens."""
        projection = self.projection.weight.detach().numpy()
        return TokenVectors(late=self.late, skipped=self.skipped, projection=projection)

    def note_rows(self, rows: Examples) -> None:
        """Note which texts are alike in the training rows."""
        self.comparison.note_rows(rows)

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the vectors (N, E) of all tokens."""
        return functional.normalize(self.projection(states.hidden).float(), dim=-1)

    def compare(self, outputs: Tensor, batch: Batch) -> Loss:
        """Return the summed loss of R records from the vectors (N, E) of all tokens of a step, by MaxSim."""
        return self.comparison(MaxSim(outputs, batch), batch)

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed loss of the records in nats."""
        return self.compare(self.outputs(states, batch), batch)


class MaxSim(Similarities):
    """The sum over a first text's tokens of each one's largest product with a token of the other text.

    Khattab & Zaharia 2020, equation 3.
    """

    def __init__(self, vectors: Tensor, batch: Batch) -> None:
        """Compare the texts of a batch, by those of their tokens' vectors (N, E) that count."""
        assert batch.head_words is not None  # `RoleLayout.complete` has set them
        sides = (column.split(list(batch.lengths)) for column in (vectors, batch.head_words))
        self.texts = [text[counts] for text, counts in zip(*sides)]

    def blocks(self, first: Tensor, others: Tensor, size: int) -> Iterable[Callable[[], Tensor]]:
        """Return what computes the scores of some first texts."""
        documents = [self.texts[index] for index in others.tolist()]
        stacked = pad_sequence(documents, batch_first=True)  # (C, T, E)
        sizes = torch.tensor([*map(len, documents)], device=stacked.device)
        padding = torch.arange(stacked.shape[1], device=stacked.device) >= sizes[:, None]  # (C, T)

        def scores(part: Tensor) -> Tensor:
            # One first text at a time: the products of all would take R times the memory.
            return torch.stack([_score(self.texts[index], stacked, padding) for index in part.tolist()])

        return [partial(scores, part) for part in first.split(size)]

    def pairs(self, first: Tensor, others: Tensor) -> Tensor:
        """Return the score (R,) of each first text and its other one."""
        pairs = zip(first.tolist(), others.tolist())
        return torch.stack([_score(self.texts[i], self.texts[j][None])[0] for i, j in pairs])


def _score(query: Tensor, documents: Tensor, padding: Tensor | None = None) -> Tensor:
    """Return the scores (C,) of documents (C, T, E), whose tokens `padding` (C, T) do not count, for a query (n, E)."""
    products = query @ documents.flatten(0, 1).T  # (n, C * T)
    if padding is not None:
        products = products.masked_fill(padding.flatten(), -math.inf)
    # max keeps indices alone for the backward pass, amax the products.
    return products.view(len(query), *documents.shape[:2]).max(dim=-1).values.sum(dim=0)
