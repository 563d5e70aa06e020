"""What several models answer together: the text to which they give the highest probability in the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from osbert.tasks.kinds.span.questions import AnswerCandidate, AnswerPrediction


def together(answers: Sequence[AnswerPrediction]) -> AnswerPrediction:
    """Return one answer for those that several models gave to one question, with all their candidates.

    A text's probability is the mean over the models, 0 where a model does not list it; of equal ones the text counts
    that an earlier model prefers. The score is that of the first model which lists it.
    """
    shares: dict[str, float] = {}
    first: dict[str, AnswerCandidate] = {}
    for answer in answers:
        for candidate in answer.candidates:
            first.setdefault(candidate.text, candidate)
            shares[candidate.text] = shares.get(candidate.text, 0.0) + candidate.probability / len(answers)
    ordered = sorted(shares, key=lambda text: -shares[text])
    candidates = tuple(first[text]._replace(probability=shares[text]) for text in ordered)
    return replace(answers[0], value=candidates[0].text, chosen=candidates[0], candidates=candidates)
