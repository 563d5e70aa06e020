"""The tagging head: token states -> scores of labels, for each token independently or as a chain, by a CRF.

A conditional random field (Lafferty et al. 2001) scores a path by the sum of the scores of its labels and of the
transitions between them; its probability is a softmax over all paths. The forward algorithm computes the normaliser
for all chains at once, flat and without padding. Decoding is in chain.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from osbert.data.batch import Batch, BatchTarget
from osbert.models.contract import Backbone, Head, Loss, States
from osbert.models.fast.dropout import Dropout
from osbert.models.fast.linear import Linear
from osbert.models.forms import Form
from osbert.models.heads.chain import Chain
from osbert.models.heads.predictions import classification_loss, transform
from osbert.models.initialisation import initialise_scores


class ChainField(nn.Module):
    """Learned transition scores of K labels: `first` and `last` (K,), `steps` (K, K) from a label (row) to the next.

    The chain `bans` adds fixed scores, which forbid steps.
    """

    first_bans: Tensor
    steps_bans: Tensor
    last_bans: Tensor

    def __init__(self, bans: Chain) -> None:
        """Start all transition scores at 0."""
        super().__init__()
        count = len(bans.first)
        self.first = nn.Parameter(torch.zeros(count))
        self.steps = nn.Parameter(torch.zeros(count, count))
        self.last = nn.Parameter(torch.zeros(count))
        for name in ("first", "steps", "last"):
            # Not persistent: the bans follow from the labels, and are no part of a checkpoint.
            self.register_buffer(f"{name}_bans", torch.from_numpy(getattr(bans, name)).float(), persistent=False)

    def log_likelihood(self, scores: Tensor, labels: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the log-probability (S,) of the labels (M,) of S concatenated chains of the given `lengths` (S,).

        `scores` (M, K): the score of each label without transitions.
        """
        if not lengths:  # a loss of 0 with gradients of 0: all processes must reduce the same gradients
            return scores.sum(dim=1) + sum(weight.sum() for weight in self.parameters())
        return self._paths(scores, labels, lengths) - self._sums(scores, lengths)

    def chain(self) -> Chain:
        """Return the learned transition scores plus the bans, for decoding."""
        first, steps, last = (part.detach().cpu().double().numpy() for part in self._parts())
        return Chain(first=first, steps=steps, last=last)

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.first + self.first_bans, self.steps + self.steps_bans, self.last + self.last_bans

    def _paths(self, scores: Tensor, labels: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the score (S,) of each chain's own path."""
        first, steps, last = self._parts()
        sizes = torch.tensor(lengths, device=labels.device)
        ends = sizes.cumsum(0)
        begins = ends - sizes
        gained = scores.gather(1, labels[:, None]).squeeze(1)  # (M,)
        # index_add out of place, so that gradients flow to `first`; a chain of one label gains both.
        gained = gained.index_add(0, begins, first[labels[begins]])
        gained = gained.index_add(0, ends - 1, last[labels[ends - 1]])
        # Every label but the first of a chain has a step from the label before it.
        inner = torch.ones_like(labels, dtype=torch.bool).index_fill(0, begins, False)
        inner = inner.nonzero().squeeze(1)
        gained = gained.index_add(0, inner, steps[labels[inner - 1], labels[inner]])
        # Sum over each chain: the number of its chain for every label, then index_add.
        chains = torch.repeat_interleave(torch.arange(len(sizes), device=labels.device), sizes)
        return gained.new_zeros(len(sizes)).index_add(0, chains, gained)

    def _sums(self, scores: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the log-sum-exp (S,) over all paths of each chain; step t computes only the chains longer than t."""
        first, steps, last = self._parts()
        packed = pack_sequence(scores.split(list(lengths)), enforce_sorted=False)  # longest chains first
        # One split per step: the scores of all chains that have this step, longest chain first.
        head, *others = packed.data.split(packed.batch_sizes.tolist())
        paths = first + head  # (S, K): all paths up to here that end in each label
        over: list[Tensor] = []
        for step_scores in others:
            # Chains that ended at the last step are the last rows: set them aside.
            over.append(paths[len(step_scores) :])
            # (S, K, 1) + (K, K): every label before (dim 1) to every next label.
            paths = torch.logsumexp(paths[: len(step_scores), :, None] + steps, dim=1) + step_scores
        over.append(paths)
        # The longest chains ended last: reversed, the rows are in the packed order again.
        return torch.logsumexp(torch.cat(over[::-1]) + last, dim=1)[packed.unsorted_indices]


class TagHead(Head):
    """Token states -> K scores a token by one linear layer (section 5.3); a CRF scores the labels of a chain jointly.

    The targets of a CRF are label numbers, with K added at the start of a chain. Its loss, too, is a mean over labels.
    """

    form: Form = "tokens"
    sparse = True
    beside = ("crf.",)

    def __init__(self, backbone: Backbone, *, target: str, labels: int, chain: Chain | None = None) -> None:
        """Stand on `backbone` with `labels` = K outputs; learn from the batch's targets named `target`.

        `chain`: fixed transition scores that a CRF adds to its learned ones; None for no CRF.
        """
        super().__init__()
        sizes = backbone.architecture
        self.target = target
        self.labels = labels
        self.transform = transform(sizes)
        self.dropout = Dropout(sizes.dropout)
        self.linear = Linear(sizes.width, labels)
        initialise_scores(self.linear, sizes.deviation)
        self.crf = None if chain is None else ChainField(chain)

    def outputs(self, states: States, batch: Batch) -> Tensor:
        return self.linear(self.dropout(self.transform(states.hidden)))

    def forward(self, states: States, batch: Batch) -> Loss:
        """Return the summed cross-entropy in nats over the labelled tokens, or a CRF's over its chains."""
        [hidden] = self.blocks(states, batch)
        return self.loss(self.linear(self.dropout(hidden)), batch.targets[self.target])

    def blocks(self, states: States, batch: Batch) -> list[Tensor]:
        """Return the inputs (M, D) of the layer for the labelled tokens."""
        return [self.transform(states.hidden[batch.targets[self.target].index])]

    def loss(self, scores: Tensor, target: BatchTarget) -> Loss:
        """Return the summed loss of `scores` (M, K): see `forward`."""
        if self.crf is None:
            return classification_loss(scores, target)
        # Labels of K and above start a chain; the remainder by K is the label.
        begins = torch.nonzero(target.labels >= self.labels).squeeze(1)
        lengths = torch.diff(begins, append=begins.new_tensor([len(target.labels)])).tolist()
        likelihood = self.crf.log_likelihood(scores.float(), target.labels % self.labels, lengths)
        return Loss(total=-likelihood.sum(), count=target.count)

    def decoding_values(self) -> dict[str, list[Any]]:
        """Return the transition scores of a CRF, by the field names of a Chain; {} without one."""
        return {} if self.crf is None else {name: part.tolist() for name, part in vars(self.crf.chain()).items()}
