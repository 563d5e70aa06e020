"""Scores of spans -> the spans that are predicted: windows put together, then the likeliest spans that go together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert_lab.named_spans.layout import SpanWindow

LOWEST_THRESHOLD = 0.02
"""The lowest threshold that is tried."""
BELOW = 1 - 1e-6
"""A tuned threshold is this part of the probability of a span, which is above it whatever rounding does."""


class ScoredSpan(NamedTuple):
    """The words [`start`, `end`) with the index of a `type` and a probability."""

    start: int
    end: int
    type: int
    probability: float


def likely_spans(
    outputs: Sequence[NDArray[np.floating]], examples: Sequence[Example], *, words: int, width: int, threshold: float
) -> list[ScoredSpan]:
    """Return the spans of a text with a probability above the threshold.

    `outputs`: (n, width * C) for each window, whose first types are its own. `words`: number of words of the text. A
    span in two windows counts in the one that has more words around it.
    """
    spans: list[ScoredSpan] = []
    windows = [
        (window, output) for window, output in zip(examples, outputs, strict=True) if isinstance(window, SpanWindow)
    ]
    for first_type, group in groupby(windows, key=lambda pair: pair[0].first_type):
        context = np.full((words, width), -1)
        logits = np.zeros((0, 0, 0))
        for window, output in group:
            types = window.types
            rows = output[window.words].reshape(-1, width, output.shape[1] // width)[:, :, :types]  # (m, width, C)
            logits = logits if logits.size else np.full((words, width, types), -np.inf)
            inner = np.arange(len(rows))[:, None]
            around = np.minimum(inner, len(rows) - 1 - inner - np.arange(width))  # (m, width); below 0: not in it
            part = slice(window.first_word, window.first_word + len(rows))
            better = around > context[part]
            context[part][better] = around[better]
            logits[part][better] = rows[better]
        probabilities = 1 / (1 + np.exp(-logits))
        for start, last, type_ in np.argwhere(probabilities > threshold).tolist():
            probability = float(probabilities[start, last, type_])
            spans.append(ScoredSpan(start, start + last + 1, first_type + type_, probability))
    return spans


def choose_spans(spans: Sequence[ScoredSpan], *, nested: bool) -> list[ScoredSpan]:
    """Return the spans that go together, in order: the likeliest first, without those that overlap a likelier one.

    `nested`: a span may stand inside another, but not cross it; the same words have one type.

    >>> spans = [ScoredSpan(0, 3, 0, 0.9), ScoredSpan(1, 2, 1, 0.8), ScoredSpan(2, 4, 1, 0.7)]
    >>> [[span[:2] for span in choose_spans(spans, nested=nested)] for nested in (False, True)]
    [[(0, 3)], [(0, 3), (1, 2)]]
    """
    chosen: list[ScoredSpan] = []
    by_word: dict[int, list[ScoredSpan]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: -span.probability):
        covered = range(span.start, span.end)
        others = {other for word in covered for other in by_word[word]}
        if any(not (nested and _is_inside(span, other)) for other in others):
            continue
        chosen.append(span)
        for word in covered:
            by_word[word].append(span)
    return sorted(chosen)


def best_threshold(scored: Sequence[tuple[float, bool]], *, true: int) -> float:
    """Return the threshold with the highest F1, just below the probability of a span; 0.5 if no span is right.

    `scored`: the probability of each predicted span, and whether it is right. `true`: number of true spans. The spans
    that are chosen above a threshold are those above it among all that are chosen, so one decoding serves for all, and
    the threshold stays the same when the spans below it are left out.

    >>> best_threshold([(0.9, True), (0.4, True), (0.2, False)], true=2)
    0.3999996
    """
    ranked = sorted(scored, reverse=True)
    hits = np.cumsum([right for _, right in ranked])
    if not len(hits) or not hits[-1]:
        return 0.5
    scores = 2 * hits / (np.arange(1, len(hits) + 1) + true)
    thresholds = BELOW * np.array([probability for probability, _ in ranked])
    # Spans that are as probable as the next one are not cut off from it.
    scores[:-1][thresholds[:-1] < thresholds[1:] / BELOW] = 0
    return float(thresholds[np.argmax(scores)])


def _is_inside(span: ScoredSpan, other: ScoredSpan) -> bool:
    """Return whether one of two spans is in the other, and they differ."""
    if span[:2] == other[:2]:
        return False
    return (span.start >= other.start and span.end <= other.end) or (
        span.start <= other.start and span.end >= other.end
    )
