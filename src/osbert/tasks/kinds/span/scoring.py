"""The official scores of answers: SQuAD's exact match and F1 over words, and CMRC 2018's over Chinese characters.

As evaluate-v1.1.py, evaluate-v2.0.py (Rajpurkar et al. 2016, 2018) and cmrc2018_evaluate.py (Cui et al. 2019) have it:
of one answer, and means over all, over those with and without an answer, and with the best thresholds.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from osbert.tasks import Prediction, Record
from osbert.tasks.kinds.span.questions import AnswerPrediction

Way = Literal["words", "characters"]
"""Words as in SQuAD, or characters as in CMRC 2018."""

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CMRC_PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# CMRC 2018 cuts what is not Chinese into words by NLTK: here into runs of letters and digits, and single signs.
_CMRC_WORD = re.compile("[\u4e00-\u9fa5]|[^\\W\u4e00-\u9fa5]+|[^\\w\\s]")


@lru_cache(maxsize=1 << 16)  # an epoch's answers are scored at several thresholds
def normalise(answer: str) -> str:
    """Return an answer in lower case, without punctuation and articles, with single spaces (SQuAD)."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_words(guess: str, true: str) -> float:
    """Return 1 if two answers are equal after normalisation, else 0 (SQuAD)."""
    return float(normalise(guess) == normalise(true))


def f1_words(guess: str, true: str) -> float:
    """Return the F1 of the multisets of words of two answers (SQuAD)."""
    guess_words, true_words = normalise(guess).split(), normalise(true).split()
    if not guess_words or not true_words:
        return float(guess_words == true_words)
    return _f1(sum((Counter(guess_words) & Counter(true_words)).values()), len(guess_words), len(true_words))


def exact_characters(guess: str, true: str) -> float:
    """Return 1 if two answers are equal up to punctuation and case, else 0 (CMRC 2018)."""
    return float(_without_signs(guess) == _without_signs(true))


def f1_characters(guess: str, true: str) -> float:
    """Return the F1 of the longest common run of two answers, of Chinese characters and other words (CMRC 2018)."""
    guess_words, true_words = (_CMRC_WORD.findall(_without_signs(answer)) for answer in (guess, true))
    if not guess_words or not true_words:
        return float(guess_words == true_words)
    return _f1(_longest_run(guess_words, true_words), len(guess_words), len(true_words))


EXACT: dict[Way, Callable[[str, str], float]] = {"words": exact_words, "characters": exact_characters}
F1: dict[Way, Callable[[str, str], float]] = {"words": f1_words, "characters": f1_characters}


def best(measure: Callable[[str, str], float], guess: str, true: Sequence[str]) -> float:
    """Return the best score of an answer over the true answers; if there are none, "" is the true answer.

    True answers that are empty after normalisation are ignored, as in evaluate-v2.0.py.
    """
    return max(measure(guess, answer) for answer in [answer for answer in true if normalise(answer)] or [""])


def best_threshold(
    margins: NDArray[np.float64], answered: NDArray[np.float64], silent: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the threshold with the highest mean score, by trying every one that makes a difference, and the score.

    For n questions: `margins` (n,), the best text's logit minus that of no answer; `answered` (n,), the metric if the
    text is given; `silent` (n,), the metric if none is. In a tie the threshold with most answers is returned. It is
    midway between two margins.
    """
    order = np.argsort(-margins, kind="stable")
    ordered = margins[order]
    # gains[k]: change of the total score if the k questions with the highest margins are answered.
    gains = np.concatenate([[0.0], np.cumsum(answered[order] - silent[order])])
    borders = np.concatenate([[ordered[0] + 2], ordered, [ordered[-1] - 2]])
    possible = np.flatnonzero(borders[:-1] > borders[1:])  # none between equal margins
    most = gains[possible].max()
    # The last maximum, up to rounding: the threshold with most answers.
    index = possible[np.flatnonzero(gains[possible] >= most - 1e-9)[-1]]
    value = float((borders[index] + borders[index + 1]) / 2)
    return value, float((silent.sum() + gains[index]) / len(margins))


def is_chinese(texts: Sequence[str]) -> bool:
    """Return whether most letters of some texts are Chinese characters."""
    letters = [character for text in texts for character in text if character.isalpha()]
    return 2 * sum("\u4e00" <= character <= "\u9fa5" for character in letters) > len(letters)


def _without_signs(answer: str) -> str:
    return "".join(character for character in answer.lower().strip() if character not in _CMRC_PUNCTUATION)


def _longest_run(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest run of segments that both have."""
    longest = 0
    # The classic table of common runs, one row at a time.
    before = [0] * (len(second) + 1)
    for segment in first:
        row = [0] * (len(second) + 1)
        for index, other in enumerate(second):
            if segment == other:
                row[index + 1] = before[index] + 1
                longest = max(longest, row[index + 1])
        before = row
    return longest


def _f1(shared: int, guess_size: int, true_size: int) -> float:
    return 2 * shared / (guess_size + true_size)


class Scores:
    """Scores of predictions against their records' true answers; `way`: the unit of comparison."""

    def __init__(self, predictions: Sequence[Prediction], records: Sequence[Record], *, way: Way) -> None:
        """Store predictions and records, which have the same order."""
        self.predictions = predictions
        self.golds = [[gold.text for gold in record.label] for record in records]
        self.answerable = np.array([bool(golds) for golds in self.golds], np.bool_)
        self.measures = {"exact": EXACT[way], "f1": F1[way]}

    def means(self) -> dict[str, float]:
        """Return exact match and F1; if some questions have no answer, also for each kind of question."""
        answers = [prediction.value for prediction in self.predictions]
        scores = {name: self._each(name, answers) for name in self.measures}
        mean_by_name = {name: float(each.mean()) for name, each in scores.items()}
        for kind, chosen in (("has_answer", self.answerable), ("no_answer", ~self.answerable)):
            if chosen.any() and not self.answerable.all():
                mean_by_name |= {f"{kind}_{name}": float(each[chosen].mean()) for name, each in scores.items()}
        return mean_by_name

    def best(self) -> dict[str, float]:
        """Return the highest exact match and F1 over all thresholds, and these thresholds.

        As `best_exact` and `best_f1` of evaluate-v2.0.py, but exact also where margins are equal.
        """
        predictions = [
            prediction if isinstance(prediction, AnswerPrediction) and prediction.margin is not None else None
            for prediction in self.predictions
        ]
        open_to_doubt = np.array([prediction is not None for prediction in predictions], np.bool_)
        margins = np.array([prediction.margin for prediction in predictions if prediction is not None], np.float64)
        best_scores: dict[str, float] = {}
        for name in self.measures:
            silent = self._each(name, [""] * len(predictions))
            answered = self._each(name, ["" if prediction is None else prediction.text for prediction in predictions])
            total, value = silent.sum(), 0.0
            if len(margins):
                value, score = best_threshold(margins, answered[open_to_doubt], silent[open_to_doubt])
                total = silent[~open_to_doubt].sum() + score * len(margins)
            best_scores |= {f"best_{name}": float(total / len(predictions)), f"best_{name}_threshold": value}
        return best_scores

    def means_at_zero(self) -> dict[str, float]:
        """Return exact match and F1 at a threshold of 0: the most probable text if it outscores no answer."""
        answers = [
            prediction.apply_threshold(0.0).value if isinstance(prediction, AnswerPrediction) else prediction.value
            for prediction in self.predictions
        ]
        return {f"untuned_{name}": float(self._each(name, answers).mean()) for name in self.measures}

    def _each(self, name: str, answers: Sequence[str]) -> NDArray[np.float64]:
        """Return each answer's score (n,)."""
        measure = self.measures[name]
        return np.array([best(measure, answer, golds) for answer, golds in zip(answers, self.golds)], np.float64)
