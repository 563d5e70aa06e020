"""Several models answer together: the mean of what each gives to a text."""

from __future__ import annotations

import pytest

from osbert.tasks.kinds.span.questions import AnswerCandidate, AnswerPrediction, together


def answer(**shares: float) -> AnswerPrediction:
    """Return an answer with candidates of these probabilities, the likeliest first."""
    listed = [AnswerCandidate(text, 0, len(text), 0.0, share) for text, share in shares.items()]
    listed.sort(key=lambda one: -one.probability)
    return AnswerPrediction(value=listed[0].text, chosen=listed[0], candidates=tuple(listed))


def test_the_text_with_the_highest_mean_is_the_answer() -> None:
    """Two of three models prefer others, but all give something to the third text."""
    said = together([answer(a=0.6, c=0.4), answer(b=0.6, c=0.4), answer(c=0.5, a=0.3, d=0.2)])
    assert said.value == said.chosen.text == "c"
    found = {one.text: one.probability for one in said.candidates}
    assert found == pytest.approx({"c": 1.3 / 3, "a": 0.3, "b": 0.2, "d": 0.2 / 3})
    assert list(found) == ["c", "a", "b", "d"] and sum(found.values()) == pytest.approx(1)


def test_one_model_alone_answers_as_ever() -> None:
    alone = answer(a=0.7, b=0.3)
    assert together([alone]) == alone and together([alone, alone]) == alone
