"""Reading comprehension: questions, their answers in a paragraph, and predictions, of one model or of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from osbert.tasks import Prediction, Record

__all__ = ["AnswerCandidate", "AnswerPrediction", "Gold", "Question"]

SHOWN = 5
"""Most answers that are displayed."""
NOTHING = "(no answer)"
"""The displayed text if the paragraph does not answer the question."""


class Gold(NamedTuple):
    """A true answer: its text, and its first character in the paragraph, -1 if the paragraph does not contain it."""

    text: str
    start: int


@dataclass(frozen=True, kw_only=True)
class Question(Record):
    """A question and its paragraph, which are its `texts`.

    `label`: the true answers, none if the paragraph does not answer it; None if unknown. `key`: its id
    in the file. `where`: its place in a file without lines, such as data[3].paragraphs[0].qas[1].
    """

    key: str = ""
    where: str = ""

    @property
    def place(self) -> str:
        return f"{self.path}, {self.where} (id {self.key})" if self.where else super().place


class AnswerCandidate(NamedTuple):
    """A possible answer: paragraph[start:end], its score, and its probability among those listed.

    No answer is a candidate too, with an empty text at -1.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float = 0.0


@dataclass(frozen=True, kw_only=True)
class AnswerPrediction(Prediction):
    """The answer of a model. `value` is a slice of the paragraph, "" for no answer.

    `chosen`: the candidate that is the value. `candidates`: the most probable ones, best first. `margin`: score of the
    best text minus that of no answer; None if all questions have answers.
    """

    chosen: AnswerCandidate
    candidates: tuple[AnswerCandidate, ...] = ()
    margin: float | None = None

    @property
    def text(self) -> str:
        """Return the most probable text, even if "no answer" is more probable."""
        return next((candidate.text for candidate in self.candidates if candidate.start >= 0), "")

    @property
    def confidence(self) -> float:
        return self.chosen.probability

    @property
    def likeliest(self) -> list[tuple[str, float]]:
        return [(candidate.text, candidate.probability) for candidate in self.candidates]

    def withhold(self) -> AnswerPrediction:
        return replace(self, value=None, chosen=self.chosen._replace(text="", start=-1, end=-1))

    def apply_threshold(self, threshold: float) -> Self:
        """Return the answer at a threshold: the most probable text if its margin is above it, else no answer."""
        if self.margin is None:
            return self
        answered = self.margin > threshold
        chosen = next(candidate for candidate in self.candidates if (candidate.start >= 0) == answered)
        return replace(self, value=chosen.text, chosen=chosen)

    @property
    def answer(self) -> str:
        return f"answered with {self.value or 'no answer'!r}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "prediction": self.value,
            "start": self.chosen.start,
            "end": self.chosen.end,
            "probability": self.chosen.probability,
            "margin": self.margin,
            "candidates": [candidate._asdict() for candidate in self.candidates],
            "truncated": self.truncated,
        }

    def lines(self) -> list[str]:
        candidate_lines = [
            f"  {candidate.probability:7.2%}  {candidate.text or NOTHING}" for candidate in self.candidates[:SHOWN]
        ]
        return [self.value or NOTHING, *candidate_lines]


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
