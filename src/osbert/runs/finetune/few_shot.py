"""Few-shot learning: a linear layer fitted to sentence vectors, which are first tuned so that the labels part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from osbert.data.batch import Batch
from osbert.errors import UserError
from osbert.evaluation.forward import evaluating
from osbert.models.contract import Backbone, Learner, Sizes
from osbert.models.heads.predictions import SequenceHead
from osbert.models.heads.same_class import SameClassHead
from osbert.models.pooling import Pooling
from osbert.runs.finetune.model import StartingModel

PENALTY = 0.1
"""Weight of half the squared norm of the layer, against the sum of the losses, of single texts."""
PAIR_PENALTY = 8.0
"""The same for pairs read apart, which have five blocks: the cosine is to outweigh what is particular to few rows."""
ITERATIONS = 200
"""Most steps of L-BFGS."""


def with_sentences(sizes: Sizes, pooling: Pooling = "mean") -> Sizes | None:
    """Return the settings of the encoder with sentence vectors for pooled states; None if its family has none such.

    They are those of the first token (cls), or else the mean.
    """
    try:
        return sizes.changed(summary="token" if pooling == "cls" else "mean", pooling="none")
    except TypeError:  # settings without these fields
        return None


def sentence_model(model: StartingModel) -> StartingModel:
    """Return the model with sentence vectors for pooled states: without a pooler, in the pooling it was trained for.

    That is the mean of the tokens' states, unless the files of a sentence model say that it is the first one's. The
    settings of the encoder say so, so that whatever opens the run reads the same vectors. Raises UserError for a
    backbone of another family.
    """
    sizes, trained = model.backbone.architecture, model.source.sentences
    changed = with_sentences(sizes, trained.pooling if trained else "mean")
    if changed is None:
        raise UserError(
            f"--few-shot needs sentence vectors, which the family {sizes.family} does not have as pooled states. Take "
            "--few-shot none.",
            code="unsupported-model",
        )
    backbone, weights = changed.empty(), model.backbone.state_dict()
    backbone.load_state_dict({name: weights[name] for name in backbone.state_dict()}, assign=True)
    return replace(model, backbone=backbone)


def contrastive_learner(backbone: Backbone, target: str) -> Learner:
    """Return the encoder with the loss that moves texts of one label together."""
    return Learner(backbone, {target: SameClassHead(backbone, target=target)})


def fit(learner: Learner, name: str, batches: Iterable[Batch]) -> float:
    """Fit the linear layer of a head to what it reads of labelled batches; return its mean loss on them.

    It is fitted by L-BFGS and the head's own loss: for classes this is a logistic regression, for numbers a ridge one.

    What is minimised is the summed loss plus a penalty times half the squared norm of the layer, for blocks that have
    mean 0 and length 1 in the mean (of single texts the pooled state is the only block): convex for the losses of
    heads, so that the start does not matter.
    """
    head = learner.heads[name]
    assert isinstance(head, SequenceHead)
    device = next(learner.parameters()).device
    labelled = [batch.to(device) for batch in batches]
    targets = [batch.targets[name] for batch in labelled]
    training = head.training
    head.eval()
    with evaluating(learner):
        frozen = [[block.float() for block in head.blocks(learner.states(batch), batch)] for batch in labelled]
    every = [torch.cat(block) for block in zip(*frozen, strict=True)]  # of all batches, by block
    center = torch.cat([block.mean(dim=0) for block in every])
    scale = torch.cat([_length(block).expand(block.shape[1]) for block in every])
    given = [(torch.cat(blocks, dim=1) - center) / scale for blocks in frozen]
    given = [own.clone() for own in given]  # what was made in inference mode passes no gradients
    penalty = PENALTY if len(every) == 1 else PAIR_PENALTY
    linear = head.linear
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def total() -> Tensor:
        return torch.stack([head.loss(linear(own), target).total for own, target in zip(given, targets)]).sum()

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = total() + penalty / 2 * linear.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(objective)
    linear.zero_grad()
    mean = total().item() / sum(target.count for target in targets)
    head.train(training)
    with torch.no_grad():  # in the unit of the states as they come
        linear.weight.div_(scale)
        linear.bias.sub_(linear.weight @ center)
    return mean


def _length(block: Tensor) -> Tensor:
    """Return the mean length () of the rows of a block (M, F), taken from their mean."""
    return (block - block.mean(dim=0)).norm(dim=1).mean().clamp_min(1e-12)
