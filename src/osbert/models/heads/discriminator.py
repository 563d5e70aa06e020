"""ELECTRA's discriminator (Clark et al. 2020): a generator fills masks, this head says which tokens it replaced."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from osbert.data.batch import Batch, BatchTarget
from osbert.models.contract import Backbone, Head, Learner, Loss, States
from osbert.models.fast.linear import Linear
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.models.initialisation import initialise
from osbert.models.transformer.block import ACTIVATIONS

SCORES = 2**23
"""Most scores over the vocabulary that pieces are drawn from at once."""


class DiscriminatorHead(Head):
    """States -> one score a token (N, 1), above 0 where the token is not the one of the text (section 2).

    Dense, the backbone's activation, one linear layer. With a `generator` it learns: `before` has the generator fill
    the masks of a batch. The target then says for each token by which number the generator's piece is drawn; without a
    generator it says which tokens are replaced.
    """

    form = "replaced"

    def __init__(self, backbone: Backbone, *, target: str = "replaced", generator: Learner | None = None) -> None:
        """Stand on `backbone`; `generator` is a learner with one head, a MaskedLanguageHead."""
        super().__init__()
        sizes = backbone.architecture
        self.target = target
        self.dense = Linear(sizes.width, sizes.width, bias=sizes.head_biases)
        self.activation = ACTIVATIONS[sizes.activation]
        self.linear = Linear(sizes.width, 1)
        self.generators = () if generator is None else (generator,)  # in a tuple: the learner holds it
        initialise(self, sizes.deviation)

    @property
    def companions(self) -> Mapping[str, Learner]:
        """Return the generator by the name of its head."""
        return {name: generator for generator in self.generators for name in generator.heads}

    def before(self, batch: Batch) -> tuple[Batch, Mapping[str, Loss]]:
        """Return the batch with pieces of the generator at the masked positions, and the generator's loss.

        No gradient passes through the drawing (section 2). A piece that is drawn as it was in the text counts as
        original; where the batch has no masked position, all of it is.
        """
        losses: dict[str, Loss] = {}
        if not self.generators or self.target not in batch.targets:
            return batch, losses
        ids = truth = batch.ids
        for name, generator in self.companions.items():
            if name not in batch.targets:  # nothing was chosen
                continue
            masked, asked = batch.with_targets((name,)), batch.targets[name]
            states = generator.states(masked, generator.backbone.readable(masked))
            head = generator.heads[name]
            losses[name] = head(states, masked)
            assert isinstance(head, MaskedLanguageHead)
            with torch.no_grad():
                numbers = self._numbers(batch)[asked.index]
                pieces = drawn(head, states.hidden[asked.index], numbers)
            ids = batch.ids.index_copy(0, asked.index, pieces)
            truth = batch.ids.index_copy(0, asked.index, asked.labels)
        labelled = self._labelled(batch, ids != truth)
        return batch.changed(ids=ids, targets={**batch.targets, self.target: labelled}), losses

    def outputs(self, states: States, batch: Batch) -> Tensor:
        """Return the scores (N, 1) of all tokens."""
        return self.linear(self.activation(self.dense(states.hidden)))

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed binary cross-entropy in nats, and ratios.

        `share`: of all tokens, those that are replaced; `precision`: of the tokens taken for replaced, those that are;
        `recall`: of the replaced tokens, those taken for it.
        """
        target = batch.targets[self.target]
        assert not target.labels.is_floating_point(), "numbers to draw by: `before` makes labels of them"
        scores, labels = self.outputs(states, batch)[target.index].squeeze(-1).float(), target.labels.float()
        total = functional.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
        taken = (scores.detach() > 0).float()
        found, count = (taken * labels).sum(), labels.new_tensor(len(labels))
        ratios = {
            "share": (labels.sum(), count),
            "precision": (found, taken.sum()),
            "recall": (found, labels.sum()),
        }
        return Loss(total=total, count=target.count, ratios=ratios)

    def _numbers(self, batch: Batch) -> Tensor:
        """Return the number from 0 to 1 of every token (N,) by which a piece is drawn."""
        target = batch.targets[self.target]
        return target.labels.new_zeros(len(batch.ids)).index_copy(0, target.index, target.labels)

    def _labelled(self, batch: Batch, replaced: Tensor) -> BatchTarget:
        """Return the target with 1 at the tokens (N,) that are replaced, 0 at others."""
        target = batch.targets[self.target]
        return BatchTarget(labels=replaced[target.index].long(), index=target.index, per_token=True, count=target.count)


def drawn(head: MaskedLanguageHead, hidden: Tensor, numbers: Tensor) -> Tensor:
    """Return the pieces (M,) at which the cumulated probabilities of states (M, D) reach `numbers` (M,), from 0 to 1.

    With uniform numbers this has the distribution of taking the highest score plus Gumbel noise; and a piece follows
    from its own number, whatever stands beside it in the batch.
    """
    rows = max(1, SCORES // len(head.bias))
    parts = zip(hidden.split(rows), numbers.split(rows), strict=True)
    return torch.cat([_drawn(head.scores(states).float(), some) for states, some in parts])


def _drawn(scores: Tensor, numbers: Tensor) -> Tensor:
    reached = scores.softmax(dim=1).cumsum(dim=1)  # (M, V)
    # The last sum is 1 to rounding: numbers are taken as shares of it, so that each is below it.
    pieces = torch.searchsorted(reached, (numbers[:, None] * reached[:, -1:]).contiguous(), right=True).squeeze(1)
    return pieces.clamp_(max=scores.shape[1] - 1)


def make_generator(backbone: Backbone, *, share: float, name: str) -> Learner:
    """Return a masked language model of `share` of the width that has the backbone's tables, with a head `name`.

    Raises ValueError where the backbone's family has none, or the share gives none that can be built.
    """
    sizes = backbone.architecture.narrowed(share)
    if sizes is None:
        raise ValueError(f"model.family = {backbone.architecture.family} has no generator that shares its tables")
    generator = sizes.build()
    generator.share_tables(backbone)
    return Learner(generator, {name: MaskedLanguageHead(generator, target=name)})
