"""Few-shot learning: a linear layer on a frozen encoder's states, perhaps after contrastive tuning by label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from osbert.data.batch import Batch, BatchTarget
from osbert.errors import UserError
from osbert.evaluation.forward import evaluating
from osbert.evaluation.score import Score, predict
from osbert.models.contract import Backbone, Head, Learner, Sizes
from osbert.models.heads.contrastive import SameClassHead
from osbert.models.heads.predictions import SequenceHead
from osbert.models.heads.tagging import TagHead
from osbert.runs.finetune.model import StartingModel
from osbert.runs.finetune.rows import FinetuneRows, TaskRows
from osbert.tasks import Prediction, Record
from osbert.tasks.tables.texts import joins_pairs, read_apart

Features: TypeAlias = tuple[list[Tensor], BatchTarget]
"""What a linear layer reads of a batch, by block (rows, width), and the labels."""
PENALTY = 0.1
"""L2 penalty for single texts and words: factor of half the squared norm of the layer, added to the sum of losses."""
PAIR_PENALTY = 8.0
"""L2 penalty for pairs, which have five blocks of features. It is high so that the cosine block dominates."""
ITERATIONS = 200
"""Most steps of L-BFGS."""
FEW_HELD_OUT = 20
"""Number of rows that would be held out below which none is: they say little of a model, and may be half of a label's
rows."""
FOLDS = 5
"""Most folds of a cross-validation."""
CROSSED = "all are learnt from, and a linear layer on the untuned encoder is scored by cross-validation"
"""What happens to so few rows by default."""


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


def cross_validate(rows: TaskRows, model: StartingModel) -> TaskRows:
    """Return the rows with the score of a linear layer on the encoder as it is, by cross-validation over all of them.

    Each row is predicted by a layer that is fitted to other folds. Folds have equal parts of each label: where one row
    is left out alone, its label is rarer than the others, and of two rows of each of two labels 0 to 10% are then right
    where the layer has 52 to 82% of other rows. A row whose label no other row has is in every fit and not scored; none
    is scored if fewer than two labels have two rows.
    """
    learner, task = Learner(model.backbone, rows.heads(model.backbone)), rows.task
    labels = [row.label if task.values == "classes" else None for row in rows.training]
    repeated = {label for label, count in Counter(labels).items() if count > 1}
    seen, folds = Counter[Any](), np.full(len(labels), FOLDS)  # FOLDS: in every fit
    for index in np.random.default_rng(0).permutation(len(labels)).tolist():
        if labels[index] in repeated and (len(repeated) > 1 or task.values != "classes"):
            folds[index] = seen[labels[index]] % FOLDS
            seen[labels[index]] += 1
    parts = [[row for row, row_fold in zip(rows.training, folds) if row_fold == fold] for fold in range(FOLDS + 1)]
    features = {}  # of each fold with rows
    for fold, part in enumerate(parts):
        if part:
            part_rows = TaskRows.of(task, {"train": part, "dev": ()}, rows.packer)
            features[fold] = frozen_features(learner, task.name, part_rows.batches())
    scored: list[Record] = []
    predictions: list[Prediction] = []
    for fold, part in enumerate(parts[:FOLDS]):
        if part:
            others = [batch for other, batches in features.items() if other != fold for batch in batches]
            fit_layer(learner.heads[task.name], others)
            predictions += predict(learner, task, part, rows.packer)
            scored += part
    predictions = task.at_best(predictions, scored) if scored else []
    metrics = task.metrics(predictions, scored) if scored else {}
    return replace(rows, development=scored, cross_validation=Score(metrics=metrics, predictions=predictions))


def fit(learner: Learner, name: str, batches: Iterable[Batch]) -> float:
    """Fit the linear layer of a head to labelled batches, with a frozen encoder; return its mean loss (`fit_layer`)."""
    return fit_layer(learner.heads[name], frozen_features(learner, name, batches))


def frozen_features(learner: Learner, name: str, batches: Iterable[Batch]) -> list[Features]:
    """Return the features of labelled batches for the linear layer of a head, with a frozen encoder."""
    head = learner.heads[name]
    assert isinstance(head, SequenceHead | TagHead)
    device = next(learner.parameters()).device
    training = head.training
    head.eval()
    with evaluating(learner):
        features = [
            ([block.float() for block in head.blocks(learner.states(batch), batch)], batch.targets[name])
            for batch in (batch.to(device) for batch in batches)
        ]
    head.train(training)
    return features


def fit_layer(head: Head, features: list[Features]) -> float:
    """Fit the linear layer of a head to `frozen_features` by L-BFGS; return its mean loss. The list is emptied.

    With the head's own loss this is a logistic regression for classes, a ridge regression for numbers, and of words a
    regression or a linear-chain CRF. The objective is the sum of the losses plus penalty / 2 times the squared norm of
    the weights. Each block of features is centred and scaled to mean length 1 before (a pair has five blocks, others
    one). The objective is convex, so the initial weights do not matter.
    """
    assert isinstance(head, SequenceHead | TagHead)
    training = head.training
    head.eval()
    frozen, targets = [blocks for blocks, _ in features], [target for _, target in features]
    features.clear()
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
