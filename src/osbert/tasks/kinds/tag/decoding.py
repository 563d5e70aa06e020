"""Scores of pieces -> scores of words; an entity's weights in them; words at which a chain may begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.long_texts import step, windows
from osbert.reading.tagged.schemes import EntitySpan


def word_scores(
    outputs: Sequence[NDArray[np.floating]],
    examples: Sequence[Example],
    *,
    overlap: int,
    pieces: Literal["first", "all"],
) -> NDArray[np.floating]:
    """Return the scores (words, K), of each word from the window in which it has most context.

    `overlap` and `pieces`: as in the settings of the task. With "all" the log-probabilities of a word's pieces are
    averaged.
    """
    tokens = _slice_tokens(examples, overlap)
    scores = np.concatenate([output[token] for output, token in zip(outputs, tokens, strict=True)])
    # Indices of first pieces, after the used tokens of all windows are concatenated: every piece occurs once.
    begins = np.flatnonzero(np.concatenate([example.words[token] for example, token in zip(examples, tokens)]))
    if pieces == "first" or not len(begins):
        return scores[begins]
    # Log-softmax of each piece, summed from each word's first piece to the next.
    sums = np.add.reduceat(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True), begins)
    return sums / np.diff(begins, append=len(scores))[:, None]


def _slice_tokens(examples: Sequence[Example], overlap: int) -> list[slice]:
    """Return the slice of tokens of each window whose scores are used."""
    sizes = [int(np.count_nonzero(~example.special)) for example in examples]
    begin = int(np.argmin(examples[0].special)) if sizes[0] else 0
    # All windows but the last have the same size, so the number of pieces of the text follows.
    count = step(sizes[0], overlap) * (len(sizes) - 1) + sizes[-1]
    parts = windows(count, room=max(sizes[0], 1), overlap=overlap)
    return [slice(begin + part.first - part.start, begin + part.last - part.start) for part in parts]


def entity_weights(
    span: EntitySpan, labels: NDArray[np.floating], examples: Sequence[Example], *, overlap: int, first: bool
) -> list[NDArray[np.float64]]:
    """Return weights (n, K) for each window; the sum of weights * outputs is the score of an entity.

    `labels` (words, K): the weights of the outputs of each of its words. These are the outputs of the word's first
    piece, or without `first` the mean over its pieces.
    """
    weights = [np.zeros((len(example), labels.shape[1])) for example in examples]
    begun = 0
    for example, token, window_weights in zip(examples, _slice_tokens(examples, overlap), weights):
        begins = example.words[token]
        numbers = begun + np.cumsum(begins) - 1 - span.start  # the entity's word that each piece is of
        inside = (numbers >= 0) & (numbers < len(labels)) & (begins | (not first))
        window_weights[token][inside] = labels[numbers[inside]]
        begun += int(begins.sum())
    if not first:
        pieces = sum(np.count_nonzero(window_weights.any(axis=1)) for window_weights in weights)
        weights = [window_weights * (len(labels) / max(pieces, 1)) for window_weights in weights]
    return weights


def uncut(words: NDArray[np.integer], spans: Sequence[EntitySpan]) -> NDArray[np.bool_]:
    """Return which of a run of words (n,) belong to no entity that extends beyond the run."""
    mask = np.ones(len(words), np.bool_)
    for start, end, _ in spans:
        inside = (words >= start) & (words < end)
        if 0 < inside.sum() < end - start:
            mask &= ~inside
    return mask
