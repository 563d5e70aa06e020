"""What reading comprehension stands on: questions, their answers in a paragraph, and what a model says; no task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from osbert.tasks import Prediction, Record

__all__ = ["AnswerCandidate", "AnswerPrediction", "Gold", "Question"]

SHOWN = 5
"""Most answers that are shown to a reader."""
NOTHING = "(no answer)"
"""How a reader is shown that the paragraph does not answer the question."""


class Gold(NamedTuple):
    """A true answer: its text, and the character of the paragraph where it begins, -1 where it does not stand there."""

    text: str
    start: int


@dataclass(frozen=True, kw_only=True)
class Question(Record):
    """A question and its paragraph, which are its `texts`.

    `label`: the true answers, Gold each, none where the paragraph does not answer it; None when unknown. `key`: its id
    in the file. `where`: its place in a file without lines, such as data[3].paragraphs[0].qas[1].
    """

    key: str = ""
    where: str = ""

    @property
    def place(self) -> str:
        """Return the place as messages show it."""
        return f"{self.path}, {self.where} (id {self.key})" if self.where else super().place


class AnswerCandidate(NamedTuple):
    """A possible answer: paragraph[start:end], its score, and its probability among those listed.

    That there is no answer is a candidate too, of an empty text at -1.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float = 0.0


@dataclass(frozen=True, kw_only=True)
class AnswerPrediction(Prediction):
    """What a model answers. `value` is a slice of the paragraph, "" where it sees no answer.

    `chosen`: the candidate that is the value. `candidates`: the likeliest ones, best first. `margin`: by how much the
    best text outscores that there is no answer; None where the task knows no such questions.
    """

    chosen: AnswerCandidate
    candidates: tuple[AnswerCandidate, ...] = ()
    margin: float | None = None

    @property
    def text(self) -> str:
        """Return the likeliest text, even if "no answer" is likelier."""
        return next((candidate.text for candidate in self.candidates if candidate.start >= 0), "")

    @property
    def confidence(self) -> float:
        """Return the probability of the answer."""
        return self.chosen.probability

    @property
    def likeliest(self) -> list[tuple[str, float]]:
        """Return the candidates' texts with their probabilities, the likeliest first."""
        return [(one.text, one.probability) for one in self.candidates]

    def above(self, threshold: float) -> tuple[Prediction, int]:
        """Return the prediction, without its answer where that is less probable than the threshold, and then 1."""
        said, withheld = super().above(threshold)
        nothing = self.chosen._replace(text="", start=-1, end=-1)
        return (replace(self, value=None, chosen=nothing), 1) if withheld else (said, 0)

    def decided(self, threshold: float) -> Self:
        """Return the answer at a threshold: the likeliest text where its margin is above, else that there is none."""
        if self.margin is None:
            return self
        answered = self.margin > threshold
        chosen = next(candidate for candidate in self.candidates if (candidate.start >= 0) == answered)
        return replace(self, value=chosen.text, chosen=chosen)

    @property
    def answer(self) -> str:
        """Return with what a question is answered."""
        return f"answered with {self.value or 'no answer'!r}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, with all candidates."""
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
        """Return the answer, and below it the likeliest ones with their probabilities."""
        shown = [f"  {one.probability:7.2%}  {one.text or NOTHING}" for one in self.candidates[:SHOWN]]
        return [self.value or NOTHING, *shown]
