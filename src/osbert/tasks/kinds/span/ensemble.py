"""Ensembles: the text with the highest mean probability over several models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from osbert.tasks.kinds.span.questions import AnswerCandidate, AnswerPrediction


def together(answers: Sequence[AnswerPrediction]) -> AnswerPrediction:
    """Combine the answers of several models to one question, with all their candidates.

    A text's probability is the mean over the models, 0 for a model that does not list it; in a tie the text
    of an earlier model is preferred. The score is that of the first model that lists it.
    """
    probabilities: dict[str, float] = {}
    first: dict[str, AnswerCandidate] = {}
    for answer in answers:
        for candidate in answer.candidates:
            first.setdefault(candidate.text, candidate)
            probabilities[candidate.text] = probabilities.get(candidate.text, 0.0) + candidate.probability / len(
                answers
            )
    ordered = sorted(probabilities, key=lambda text: -probabilities[text])
    candidates = tuple(first[text]._replace(probability=probabilities[text]) for text in ordered)
    return replace(answers[0], value=candidates[0].text, chosen=candidates[0], candidates=candidates)
