"""The official scores of answers: SQuAD's exact match and F1 over words, and CMRC 2018's over Chinese characters.

As evaluate-v1.1.py, evaluate-v2.0.py (Rajpurkar et al. 2016, 2018) and cmrc2018_evaluate.py (Cui et al. 2019) have it.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A threshold: answers with a margin above `value` are given, with the mean score `score`."""

    value: float
    score: float


def best_threshold(
    margins: NDArray[np.float64], answered: NDArray[np.float64], silent: NDArray[np.float64]
) -> Threshold:
    """Return the threshold with the highest mean score, by trying every one that makes a difference.

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
    return Threshold(value=value, score=float((silent.sum() + gains[index]) / len(margins)))


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
