"""Scores of pieces -> scores of words, spans of words -> entities of a text, and which words a chain may begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example
from osbert.data.windows import step, windows
from osbert.reading.tagged.schemes import EntitySpan
from osbert.tasks.kinds.tag.passages import TaggedText


def word_scores(
    outputs: Sequence[NDArray[np.floating]],
    examples: Sequence[Example],
    *,
    overlap: int,
    pieces: Literal["first", "all"],
) -> NDArray[np.floating]:
    """Return the scores (words, K), each word's from the window in which it has most context.

    `overlap` and `pieces`: as in the settings of the task. With "all" the log-probabilities of a word's pieces are
    averaged.
    """
    sizes = [int(np.count_nonzero(~example.special)) for example in examples]
    begin = int(np.argmin(examples[0].special)) if sizes[0] else 0
    count = step(sizes[0], overlap) * (len(sizes) - 1) + sizes[-1]
    parts = windows(count, room=max(sizes[0], 1), overlap=overlap)
    tokens = [slice(begin + part.first - part.start, begin + part.last - part.start) for part in parts]
    scores = np.concatenate([output[token] for output, token in zip(outputs, tokens, strict=True)])
    begins = np.flatnonzero(np.concatenate([one.words[token] for one, token in zip(examples, tokens)]))
    if pieces == "first" or not len(begins):
        return scores[begins]
    sums = np.add.reduceat(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True), begins)
    return sums / np.diff(begins, append=len(scores))[:, None]


def uncut(words: NDArray[np.integer], spans: Sequence[EntitySpan]) -> NDArray[np.bool_]:
    """Return which of a run of words (n,) are of no entity that goes on outside: a chain does not begin within one."""
    kept = np.ones(len(words), np.bool_)
    for start, end, _ in spans:
        inside = (words >= start) & (words < end)
        if 0 < inside.sum() < end - start:
            kept &= ~inside
    return kept


def found_entity(record: TaggedText, span: EntitySpan, probability: float) -> dict[str, Any]:
    """Return an entity with its characters in the text, as predictions list it."""
    start, end = record.words[span.start][0], record.words[span.end - 1][1]
    text = record.texts[0][start:end]
    return {"start": start, "end": end, "type": span.type, "text": text, "probability": probability}
