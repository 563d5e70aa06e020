"""word2vec as products of matrices: skip-gram and CBOW with negative sampling (Mikolov et al. 2013, 2013b).

The original processes one pair of words at a time. Here a step has GROUP rows of ROW neighbouring words: the scores of
all pairs in a row are one product, and all words of a step share NEGATIVES noise words, weighted so that their sum has
the expectation of `negative` samples per pair (Ji et al. 2016). Steps are short, so that the summed gradient of a
frequent word stays as small as that of a few pairs. The updates are plain SGD.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

ROW = 32
"""Words in a row. Their windows extend into the neighbouring rows."""
GROUP = 16
"""Most rows in a step."""
NEGATIVES = 64
"""Noise words sampled for a step. With 32, CBOW is faster but its vectors are worse (docs/results.md)."""
STABLE = 3.0
"""Largest product of the learning rate and the expected number of gradients of one table row in a step. Above it the
vectors of frequent words diverge."""
NEVER = np.iinfo(np.int32).max
"""A distance that is wider than any window."""
POWER = 0.75
"""Exponent of the counts in the distribution of noise words (Mikolov et al. 2013b, section 2.2)."""


@dataclass(frozen=True, kw_only=True)
class WindowStep:
    """The words of one step, R rows of S, with `reach` words on either side of a row (E = S + 2 reach).

    `ids` (R, S), `around` (R, E): the words. `pairs` (R, S, E): 1 if a word and one around it are a pair, else 0.
    """

    ids: Tensor
    around: Tensor
    pairs: Tensor


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """The two learned tables (V, D): `inputs`, the vectors of words, and `outputs`, those of predicted words."""

    inputs: Tensor
    outputs: Tensor

    @classmethod
    def fresh(cls, words: int, width: int, generator: torch.Generator) -> Vectors:
        """Return input rows from U(-.5, .5) / D and output rows of 0, as in word2vec."""
        inputs = (torch.rand(words, width, dtype=torch.float32, generator=generator) - 0.5) / width
        return cls(inputs=inputs, outputs=torch.zeros(words, width, dtype=torch.float32))


def keep_rates(counts: NDArray[np.integer], sample: float) -> NDArray[np.float64]:
    """Return the probability with which each word (V,) is kept: (sqrt(f / t) + 1) t / f for its frequency f, at most 1.

    This is what word2vec's code computes with t = `sample`; Mikolov et al. (2013b, equation 5) have 1 - sqrt(t / f).
    0 keeps all words that occur.

    >>> keep_rates(np.array([0, 10, 90]), sample=0.1).round(3).tolist()
    [0.0, 1.0, 0.444]
    """
    if not sample:
        return (counts > 0).astype(np.float64)
    ratio = counts / (sample * max(1, counts.sum()))
    with np.errstate(divide="ignore"):
        return np.where(counts > 0, np.minimum(1, (np.sqrt(ratio) + 1) / ratio), 0.0)


def noise_bounds(counts: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the upper bound (V,) of each word's interval in [0, 1), whose length is proportional to count ** POWER.

    >>> noise_bounds(np.array([0, 1, 16])).round(3).tolist()
    [0.0, 0.111, 1.0]
    """
    bounds = np.cumsum(counts.astype(np.float64) ** POWER)
    return bounds / bounds[-1]


def pace(load: float) -> tuple[int, float]:
    """Return the number of rows in a step and the factor of the learning rate that keep steps stable.

    `load`: the learning rate times the number of gradients per row of words for the most frequent word's table row.

    >>> pace(0.1), pace(1.0), pace(6.0)
    ((16, 1.0), (3, 1.0), (1, 0.5))
    """
    return max(1, min(GROUP, int(STABLE / load))), min(1.0, STABLE / load)


def steps(
    ids: NDArray[np.integer],
    texts: NDArray[np.integer],
    *,
    window: int,
    centred: bool,
    rng: np.random.Generator,
    group: int = GROUP,
) -> Iterator[WindowStep]:
    """Yield the words `ids` (n,) of the texts numbered by `texts` (n,), never negative, in steps of `group` rows.

    Each word has a random window of 1 to `window` words on either side. `centred`: a word is paired with the words in
    its own window (CBOW); otherwise with the words whose windows contain it (skip-gram).
    """
    if not len(ids):  # a block of unknown words alone, or whose words were all thinned out
        return
    # Filled up to whole rows; padding belongs to text -1, which pairs with no text.
    missing = -len(ids) % ROW
    widths = np.pad(rng.integers(1, window + 1, len(ids)), (0, missing)).astype(np.int32)
    ids, texts = np.pad(ids, (0, missing)), np.pad(texts.astype(np.int32), (0, missing), constant_values=-1)
    # (R, S) words, and (R, E) the same with `window` words on either side.
    rows, around = ids.reshape(-1, ROW), _around(ids, window, 0)
    distances = np.abs(np.arange(ROW)[:, None] - np.arange(-window, ROW + window)).astype(np.int32)  # (S, E)
    # Distance 0 is the word itself, which is no pair. Beyond the ends the text is -2, unlike padding's -1.
    near, others = np.where(distances > 0, distances, NEVER), _around(texts, window, -2)
    # The window that decides is that of the row's word (CBOW) or of the word around it (skip-gram).
    wide = widths.reshape(-1, ROW, 1) if centred else _around(widths, window, 0)[:, None, :]
    for start in range(0, len(rows), group):
        part = slice(start, start + group)
        pairs = (near <= wide[part]) & (texts.reshape(-1, ROW)[part, :, None] == others[part, None, :])
        yield WindowStep(
            ids=torch.from_numpy(rows[part]),
            around=torch.from_numpy(around[part]),
            pairs=torch.from_numpy(pairs.astype(np.float32)),
        )


def skip_gram(vectors: Vectors, step: WindowStep, noise: Tensor, *, negative: float, rate: float) -> None:
    """Update the tables by a step of SGD: the input row of each word predicts the words that it is paired with.

    `noise` (M,): noise words, each with weight negative / M for every pair that does not predict it. The loss of a pair
    is -log s(u.v) - sum log s(-u.v') (Mikolov et al. 2013b, equation 4).
    """
    inputs, targets = embedding(step.ids, vectors.inputs), embedding(step.around, vectors.outputs)
    others = vectors.outputs[noise]
    # Minus the derivative of -log s(x): s(-x), for every pair.
    pull = torch.sigmoid_(-(inputs @ targets.transpose(1, 2))).mul_(step.pairs)  # (R, S, E)
    same = (step.around[:, :, None] == noise).to(pull.dtype)  # (R, E, M)
    # Weight of noise word m for each word: its pairs, less those that predict m itself.
    drawn = (step.pairs.sum(2, keepdim=True) - step.pairs @ same).mul_(-negative / len(noise))
    push = torch.sigmoid_(inputs @ others.T).mul_(drawn)  # (R, S, M)
    width = inputs.shape[2]
    # Gradients of output rows: of the words around, (R E, D), and of the noise words, (M, D).
    change = torch.cat([(pull.transpose(1, 2) @ inputs).view(-1, width), _against(push, inputs)])
    error = (pull @ targets + push @ others).view(-1, width)
    _add(vectors.inputs, step.ids.reshape(-1), error.mul_(rate))
    _add(vectors.outputs, torch.cat([step.around.reshape(-1), noise]), change.mul_(rate))


def cbow(vectors: Vectors, step: WindowStep, noise: Tensor, *, negative: float, rate: float) -> None:
    """Update the tables by a step of SGD: the mean of the input rows around each word predicts the word.

    As in word2vec's code and in gensim, each of these rows gets the full gradient of the mean, not divided by their
    number. `noise` as in `skip_gram`.
    """
    width, rows = vectors.inputs.shape[1], step.ids.reshape(-1)
    targets, others = embedding(rows, vectors.outputs), embedding(noise, vectors.outputs)
    number = step.pairs.sum(2, keepdim=True)
    # (R, S, E) @ (R, E, D) -> (R S, D).
    means = torch.bmm(step.pairs, embedding(step.around, vectors.inputs)).div_(number.clamp(min=1)).view(-1, width)
    # Words without any context predict nothing. The rate scales the few errors instead of the many changes.
    scale = number.view(-1, 1).clamp(max=1).mul_(rate)  # (R S, 1)
    pull = torch.sigmoid_(-(means * targets).sum(1, keepdim=True)).mul_(scale)
    push = torch.sigmoid_(means @ others.T).mul_((rows[:, None] != noise) * (scale * (-negative / len(noise))))
    change = torch.cat([pull * means, push.T @ means])
    error = targets.mul_(pull).addmm_(push, others).view(*step.ids.shape, width)
    _add(vectors.inputs, step.around.reshape(-1), torch.bmm(step.pairs.transpose(1, 2), error).view(-1, width))
    _add(vectors.outputs, torch.cat([rows, noise]), change)


def loss(vectors: Vectors, step: WindowStep, noise: Tensor, *, negative: float, centred: bool) -> tuple[float, float]:
    """Return the summed loss of a step and its number of predictions, for CBOW (`centred`) or skip-gram."""
    softplus = torch.nn.functional.softplus
    if centred:
        number = step.pairs.sum(2, keepdim=True)
        sources = (step.pairs @ vectors.inputs[step.around]) / number.clamp(min=1)
        weights = (number > 0).to(sources.dtype)
        right = softplus(-(sources * vectors.outputs[step.ids]).sum(2, keepdim=True)).mul(weights).sum()
    else:
        sources = vectors.inputs[step.ids]
        weights = step.pairs.sum(2, keepdim=True)
        right = softplus(-(sources @ vectors.outputs[step.around].transpose(1, 2))).mul(step.pairs).sum()
    wrong = softplus(sources @ vectors.outputs[noise].T).mul(weights).sum() * negative / len(noise)
    return float(right + wrong), float(weights.sum())


def _around(values: NDArray[np.integer], reach: int, fill: int) -> NDArray[np.integer]:
    """Return values (n,) in rows of ROW with `reach` neighbours on either side: (n / ROW, ROW + 2 reach)."""
    padded = np.pad(values, reach, constant_values=fill)
    # A view of all windows, of which every ROW-th is copied.
    return np.lib.stride_tricks.sliding_window_view(padded, ROW + 2 * reach)[::ROW].copy()


def _add(table: Tensor, rows: Tensor, change: Tensor) -> None:
    """Add the change (n, D) to these rows (n,) of the table; a row may occur several times."""
    # On CPU scatter_add_ takes half the time of index_add_.
    table.scatter_add_(0, rows[:, None].expand(-1, table.shape[1]), change)


def _against(push: Tensor, inputs: Tensor) -> Tensor:
    """Return the gradients (M, D) of the noise words' rows, summed over all words of the step."""
    return push.reshape(-1, push.shape[2]).T @ inputs.reshape(-1, inputs.shape[2])
