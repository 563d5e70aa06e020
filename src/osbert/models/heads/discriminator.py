"""ELECTRA's discriminator (Clark et al. 2020): a generator fills masks, and this head detects replaced tokens."""

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
"""Most vocabulary scores in memory while pieces are sampled."""


class DiscriminatorHead(Head):
    """States -> a logit for each token (N, 1): above 0 if it is predicted to be replaced (section 2).

    Dense, the backbone's activation, one linear layer. For training it needs a `generator`, with which `before` fills
    the masks of a batch; the target of a token is then a uniform number, by which the generator's piece is sampled.
    Without a generator the targets are labels: 1 for replaced tokens.
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
        return {name: generator for generator in self.generators for name in generator.heads}

    def before(self, batch: Batch) -> tuple[Batch, Mapping[str, Loss]]:
        """Return the batch with sampled pieces at the masked positions, and the generator's loss.

        No gradient passes through the sampling (section 2). A sampled piece that equals the original counts as
        original. In a batch without masked positions every token is original.
        """
        losses: dict[str, Loss] = {}
        if not self.generators or self.target not in batch.targets:
            return batch, losses
        # Both differ from the batch only where the generator has a target.
        ids = truth = batch.ids
        own = batch.targets[self.target]
        for name, generator in self.companions.items():
            if name not in batch.targets:  # nothing was chosen
                continue
            # The generator sees its own targets alone.
            masked, target = batch.with_targets((name,)), batch.targets[name]
            states = generator.states(masked, generator.backbone.readable(masked))
            head = generator.heads[name]
            losses[name] = head(states, masked)
            assert isinstance(head, MaskedLanguageHead)
            with torch.no_grad():
                # The uniform numbers in [0, 1) are part of the example, so pieces depend on no batch and no process.
                numbers = own.labels.new_zeros(len(batch.ids)).index_copy(0, own.index, own.labels)  # (N,)
                pieces = sample_pieces(head, states.hidden[target.index], numbers[target.index])
            ids = batch.ids.index_copy(0, target.index, pieces)
            truth = batch.ids.index_copy(0, target.index, target.labels)
        replaced = (ids != truth)[own.index].long()
        labelled = BatchTarget(labels=replaced, index=own.index, per_token=True, count=own.count)
        return batch.replace_columns(ids=ids, targets={**batch.targets, self.target: labelled}), losses

    def outputs(self, states: States, batch: Batch) -> Tensor:
        return self.linear(self.activation(self.dense(states.hidden)))

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed binary cross-entropy in nats, and ratios.

        `share`: the fraction of replaced tokens; `precision` and `recall`: of the predicted replacements.
        """
        target = batch.targets[self.target]
        assert not target.labels.is_floating_point(), "numbers to draw by: `before` makes labels of them"
        scores, labels = self.outputs(states, batch)[target.index].squeeze(-1).float(), target.labels.float()
        # One logit for each token (section 2): the sum here, the mean when `Loss` is divided by the count.
        total = functional.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
        # A logit above 0 is a probability above 1/2.
        taken = (scores.detach() > 0).float()
        hits, count = (taken * labels).sum(), labels.new_tensor(len(labels))
        ratios = {"share": (labels.sum(), count), "precision": (hits, taken.sum()), "recall": (hits, labels.sum())}
        return Loss(total=total, count=target.count, ratios=ratios)


def sample_pieces(head: MaskedLanguageHead, hidden: Tensor, numbers: Tensor) -> Tensor:
    """Sample pieces (M,) for states (M, D): those at which the cumulative probabilities reach `numbers` (M,) in [0, 1).

    With uniform numbers this inverse transform sampling has the same distribution as Gumbel-max. A piece depends on its
    own number only, not on the rest of the batch.
    """
    # A few rows at a time: all masked tokens of a step by the vocabulary would not fit in memory.
    rows = max(1, SCORES // len(head.bias))
    pieces = []
    for states, part in zip(hidden.split(rows), numbers.split(rows), strict=True):
        reached = head.scores(states).float().softmax(dim=1).cumsum(dim=1)  # (rows, V): the cumulative distribution
        # The last sum is 1 up to rounding: numbers are scaled by it, so that none lies beyond it.
        sampled = torch.searchsorted(reached, (part[:, None] * reached[:, -1:]).contiguous(), right=True).squeeze(1)
        pieces.append(sampled.clamp_(max=reached.shape[1] - 1))
    return torch.cat(pieces)


def make_generator(backbone: Backbone, *, factor: float, name: str) -> Learner:
    """Return a masked language model of `factor` times the width that shares the backbone's tables, with a head `name`.

    Raises ValueError if the backbone's family has no such model, or its sizes cannot be built.
    """
    sizes = backbone.architecture.narrow(factor)
    if sizes is None:
        raise ValueError(f"model.family = {backbone.architecture.family} has no generator that shares its tables")
    generator = sizes.build()
    generator.share_tables(backbone)
    return Learner(generator, {name: MaskedLanguageHead(generator, target=name)})
