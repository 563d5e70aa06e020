"""Few-shot learning: a linear layer on a frozen encoder's states, perhaps after contrastive tuning by label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from osbert.data.batch import Batch
from osbert.errors import UserError
from osbert.evaluation.forward import evaluating
from osbert.models.contract import Backbone, Head, Learner, Sizes
from osbert.models.heads.contrastive import SameClassHead
from osbert.models.heads.predictions import SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert.runs.finetune.model import StartingModel
from osbert.runs.finetune.rows import FinetuneRows, TaskRows
from osbert.tasks.tables.texts import joins_pairs, read_apart

PENALTY = 0.1
"""L2 penalty for single texts and words: factor of half the squared norm of the layer, added to the sum of losses."""
PAIR_PENALTY = 8.0
"""L2 penalty for pairs, which have five blocks of features. It is high so that the cosine block dominates."""
ITERATIONS = 200
"""Most steps of L-BFGS."""
FEW_HELD_OUT = 20
"""Number of rows held out of the training rows below which a linear layer is fitted again at the end, to these rows
too: they say little of a model, and may be half of the rows of a label."""


def with_sentences(sizes: Sizes, pooling: str = "mean") -> Sizes | None:
    """Return the encoder's settings with sentence vectors as pooled states: the first token (cls) or the mean, as unit
    vectors.

    With 2 to 8 rows of a class a layer on unit vectors is up to 2 points better, since the lengths of vectors are
    noise that so few rows do not average out. None if the family has no such settings.
    """
    try:
        return sizes.replace(summary="token" if pooling == "cls" else "mean", pooling="unit")
    except TypeError:  # settings without these fields
        return None


def sentence_model(model: StartingModel) -> StartingModel:
    """Return the model without its pooler, with sentence vectors as pooled states.

    Pooling is that of the files of a sentence model (cls or mean), by default the mean. It becomes a setting of the
    encoder, so that the run has the same vectors whenever it is opened. Raises UserError for families without such
    settings.
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
    remarks = model.remarks
    if trained and not trained.is_plain:
        taken = "first state" if trained.pooling == "cls" else "mean"
        remarks += (f"few-shot learning takes the {taken} of a text's states, without the model's prompts and parts",)
    return replace(model, backbone=backbone, remarks=remarks)


def read_pairs_apart(rows: TaskRows, model: StartingModel) -> tuple[Learner, FinetuneRows] | None:
    """Return the encoder with a layer that compares the texts of pairs, and the pairs read so; None for other rows.

    The layer is fitted beside the fine-tuning of a model that reads the two texts of a pair as one sequence, and which
    shares the encoder's weights.
    """
    if not joins_pairs(rows.task):
        return None
    task, backbone = read_apart(rows.task, rows.training), sentence_model(model).backbone
    apart = TaskRows.of(task, {"train": rows.training, "dev": rows.development}, rows.packer)
    return Learner(backbone, apart.heads(backbone)), FinetuneRows.of([apart])


def contrastive_learner(backbone: Backbone, name: str, head: Head) -> Learner:
    """Return the encoder with the contrastive loss, which draws texts of one label together, for a task's head."""
    assert isinstance(head, SequenceHead)
    return Learner(backbone, {name: SameClassHead(backbone, target=name, stride=head.stride)})


def fit_all_rows(learner: Learner, rows: TaskRows) -> None:
    """Fit the linear layer of a task's head to its training and its development rows together."""
    every = TaskRows.of(rows.task, {"train": [*rows.training, *rows.development], "dev": ()}, rows.packer)
    fit(learner, rows.task.name, every.batches())


def fit(learner: Learner, name: str, batches: Iterable[Batch]) -> float:
    """Fit the linear layer of a head to labelled batches by L-BFGS, with a frozen encoder; return its mean loss.

    With the head's own loss this is a logistic regression for classes, a ridge regression for numbers, and of words a
    regression or a linear-chain CRF. The objective is the sum of the losses plus penalty / 2 times the squared norm of
    the weights. Each block of features is centred and scaled to mean length 1 before (a pair has five blocks, others
    one). The objective is convex, so the initial weights do not matter.
    """
    head = learner.heads[name]
    assert isinstance(head, SequenceHead | TagHead)
    device = next(learner.parameters()).device
    labelled = [batch.to(device) for batch in batches]
    targets = [batch.targets[name] for batch in labelled]
    training = head.training
    head.eval()
    with evaluating(learner):
        frozen = [[block.float() for block in head.blocks(learner.states(batch), batch)] for batch in labelled]
    every = [torch.cat(block) for block in zip(*frozen, strict=True)]  # of all batches, by block
    center = torch.cat([block.mean(dim=0) for block in every])
    # The mean distance of the rows of a block from their mean, never 0.
    lengths = [(block - block.mean(dim=0)).norm(dim=1).mean().clamp_min(1e-12) for block in every]
    scale = torch.cat([length.expand(block.shape[1]) for length, block in zip(lengths, every)])
    penalty = PENALTY if len(every) == 1 else PAIR_PENALTY
    standardised = [(torch.cat(blocks, dim=1) - center) / scale for blocks in frozen]
    del frozen, every  # gigabytes for many words
    linear = head.linear
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    weights = [
        *linear.parameters(),
        *(weight for name, weight in head.named_parameters() if name.startswith(head.beside)),
    ]
    optimizer = torch.optim.LBFGS(weights, max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def total() -> Tensor:
        losses = [head.loss(linear(features), target) for features, target in zip(standardised, targets)]
        return torch.stack([loss.total for loss in losses]).sum()

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = total() + penalty / 2 * linear.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(objective)
    head.zero_grad()
    mean = total().item() / sum(target.count for target in targets)
    head.train(training)
    # Fold the standardisation into the layer: w.((x - c) / s) + b = (w / s).x + (b - (w / s).c). So the head works on
    # the states as they are.
    with torch.no_grad():
        linear.weight.div_(scale)
        linear.bias.sub_(linear.weight @ center)
    return mean
