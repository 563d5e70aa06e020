"""Leaves out training rows whose labels are probably wrong, by confident learning (Northcutt et al. 2021).

A logistic regression on the vectors of the frozen encoder predicts each row after it was fitted to the other folds. A
label k has the threshold t_k, the mean probability of k among the rows with this label (section 3.1 there, equation 2).
A row is doubted if its likeliest label among those that reach their thresholds is not its own: a member of an
off-diagonal cell of the confident joint (equation 1). Rates of errors may differ by label, and no rate is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.data.record_loader import EncodedAhead
from osbert.evaluation.forward import batches, evaluating
from osbert.models.contract import Learner
from osbert.models.forms import pair_blocks
from osbert.runs.contract import Notice, Watch
from osbert.runs.finetune.few_shot import PAIR_PENALTY, sentence_model, with_sentences
from osbert.runs.finetune.model import StartingModel
from osbert.runs.finetune.rows import TaskRows
from osbert.tasks import Record
from osbert.terminal import one_line
from osbert_lab.analysis.probe import minimise
from osbert_lab.study.folds import deal_folds

FOLDS = 5
PENALTY = 1.0
"""L2 penalty for single texts: ten times that of few-shot learning, which a fifth of wrong labels would mislead."""
ITERATIONS = 60
"""Most steps of L-BFGS. The fit needs no more to rank the labels of a row."""
MOST = 0.5
"""Most of a label's rows that are left out, those of the lowest probability: what is left still has each label."""


def leave_out(rows: TaskRows, model: StartingModel, watch: Watch) -> TaskRows:
    """Return the rows of a task without the training rows whose labels are doubted; remarks list these.

    Nothing is left out if the task does not ask for it, the encoder has no sentence vectors, or there are fewer than
    FOLDS rows.
    """
    records, sizes = rows.training, model.backbone.architecture
    if not rows.task.doubts_labels or with_sentences(sizes) is None or len(records) < FOLDS:
        return rows
    names = rows.task.classes
    labels = np.array([names.index(record.label) for record in records], np.int64)
    features, folds = text_features(rows, model), deal_folds(labels.tolist(), FOLDS)
    penalty = PENALTY if len(records[0].texts) == 1 else PAIR_PENALTY
    probabilities = cross_fit(features, labels, len(names), folds, penalty)
    guesses = confident_labels(probabilities, labels)
    doubted = keep_each_label(guesses != labels, probabilities, labels)
    remaining = [record for record, out in zip(records, doubted.tolist()) if not out]
    watch(
        Notice(
            f"{rows.task.name}: {doubted.sum():,} of {len(records):,} training rows are left out: a regression on "
            "the vectors of the other rows contradicts their labels; remarks.txt lists them"
        )
    )
    remarks = [
        f"{record.place}: left out, as the label '{one_line(str(record.label))}' is probably wrong: by the other rows "
        f"'{one_line(names[guess])}' has the probability {row[guess]:.2f}"
        for record, out, guess, row in zip(records, doubted.tolist(), guesses.tolist(), probabilities.tolist())
        if out
    ]
    encoded = EncodedAhead(rows.task.encode(record, rows.packer) for record in remaining)
    return replace(rows, training=remaining, encoded=encoded, remarks=[*rows.remarks, *remarks])


def text_features(rows: TaskRows, model: StartingModel) -> Tensor:
    """Return the features (n, F) of the training rows: the vector of each text, of pairs u, v, |u - v|, uv and cosine.

    Of a long text the beginning is read. Each block is centred and has the mean length 1.
    """
    backbone, texts = sentence_model(model).backbone, max(len(record.texts) for record in rows.training)
    learner = Learner(backbone, {})
    vectors = [_vectors(rows, learner, [record.texts[number] for record in rows.training]) for number in range(texts)]
    blocks = pair_blocks(*vectors) if texts == 2 else vectors
    centred = [block - block.mean(dim=0) for block in blocks]
    return torch.cat([block / block.norm(dim=1).mean().clamp_min(1e-12) for block in centred], dim=1)


def _vectors(rows: TaskRows, learner: Learner, texts: Sequence[str]) -> Tensor:
    """Return the vectors (n, D) of texts, of length 1."""
    firsts = [
        rows.task.encode(Record(number=number, texts=(text,)), rows.packer)[0] for number, text in enumerate(texts)
    ]
    vectors = torch.empty(len(texts), learner.backbone.architecture.width)
    with evaluating(learner) as device:
        for batch in batches(firsts):
            pooled = learner.states(batch.to(device)).pooled.float().cpu()
            vectors[batch.records] = torch.nn.functional.normalize(pooled, dim=-1)
    return vectors


def cross_fit(
    features: Tensor, labels: NDArray[np.int64], count: int, folds: NDArray[np.int64], penalty: float = PENALTY
) -> NDArray[np.float32]:
    """Return the probabilities (n, K) of `count` labels for each row, by a regression that has not seen its fold.

    `features` (n, F), `labels` and `folds` (n,). `penalty`: factor of half the squared norm of the weights (F, K).
    """
    probabilities = np.zeros((len(labels), count), np.float32)
    for fold in range(int(folds.max()) + 1):
        out = torch.from_numpy(folds == fold)
        weight, bias = fit_regression(features[~out], torch.from_numpy(labels)[~out], count, penalty)
        probabilities[folds == fold] = torch.softmax(features[out] @ weight + bias, dim=1).numpy()
    return probabilities


def fit_regression(features: Tensor, labels: Tensor, count: int, penalty: float) -> tuple[Tensor, Tensor]:
    """Return the weights (F, K) and biases (K,) of a regression on features (n, F) of rows with labels (n,)."""
    weight, bias = torch.zeros(features.shape[1], count, requires_grad=True), torch.zeros(count, requires_grad=True)

    def loss() -> Tensor:
        losses = torch.nn.functional.cross_entropy(features @ weight + bias, labels, reduction="sum")
        return losses + penalty / 2 * weight.square().sum()

    minimise(loss, [weight, bias], steps=ITERATIONS, gradient=1e-7)
    return weight.detach(), bias.detach()


def confident_labels(probabilities: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row (n,) the likeliest label that reaches its threshold, or the row's own if none does.

    `probabilities` (n, K), `labels` (n,). The threshold of a label is its mean probability among its own rows.

    >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.95, 0.05]], np.float32)
    >>> confident_labels(probabilities, np.array([0, 0, 1, 1, 1])).tolist()
    [0, 0, 1, 1, 0]
    """
    counts = np.bincount(labels, minlength=probabilities.shape[1])
    label_probabilities = probabilities[np.arange(len(labels)), labels]
    sums = np.bincount(labels, weights=label_probabilities, minlength=len(counts))
    thresholds = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
    confident = np.where(probabilities >= thresholds, probabilities, -np.inf)
    return np.where(np.isfinite(confident).any(axis=1), confident.argmax(axis=1), labels)


def keep_each_label(
    doubted: NDArray[np.bool_], probabilities: NDArray[np.float32], labels: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return the doubted rows (n,), of each label at most MOST of its rows, and none of one with fewer than FOLDS.

    >>> doubted, labels = np.ones(6, np.bool_), np.array([0, 0, 0, 0, 0, 1])
    >>> label_probabilities = np.array([0.5, 0.1, 0.4, 0.2, 0.3, 0.1], np.float32)
    >>> keep_each_label(doubted, np.stack([label_probabilities, label_probabilities], axis=1), labels).tolist()
    [False, True, False, True, False, False]
    """
    left_out = np.zeros_like(doubted)
    label_probabilities = probabilities[np.arange(len(labels)), labels]
    for label in np.unique(labels[doubted]):
        rows = np.flatnonzero(doubted & (labels == label))
        count = int((labels == label).sum())
        most = int(MOST * count) if count >= FOLDS else 0
        left_out[rows[np.argsort(label_probabilities[rows], kind="stable")[:most]]] = True
    return left_out
