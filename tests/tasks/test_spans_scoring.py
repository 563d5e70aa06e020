"""Scores of answers equal the official scripts, restated here; thresholds equal a search over every one."""

from __future__ import annotations

import collections
import re
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.tasks.kinds.span.questions import AnswerCandidate, AnswerPrediction, Gold, Question
from osbert.tasks.kinds.span.scoring import (
    Scores,
    best,
    best_threshold,
    exact_characters,
    exact_words,
    f1_characters,
    f1_words,
    is_chinese,
)

# evaluate-v2.0.py, as published.


def normalize_answer(s):
    def white_space_fix(text):
        return " ".join(text.split())

    def remove_articles(text):
        return re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", text)

    def remove_punc(text):
        return "".join(ch for ch in text if ch not in set(string.punctuation))

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def get_tokens(s):
    return normalize_answer(s).split() if s else []


def compute_f1(a_gold, a_pred):
    gold_toks, pred_toks = get_tokens(a_gold), get_tokens(a_pred)
    num_same = sum((collections.Counter(gold_toks) & collections.Counter(pred_toks)).values())
    if len(gold_toks) == 0 or len(pred_toks) == 0:
        return int(gold_toks == pred_toks)
    if num_same == 0:
        return 0
    precision, recall = 1.0 * num_same / len(pred_toks), 1.0 * num_same / len(gold_toks)
    return (2 * precision * recall) / (precision + recall)


def find_best_thresh(preds, scores, na_probs, qid_to_has_ans):
    num_no_ans = sum(1 for k in qid_to_has_ans if not qid_to_has_ans[k])
    cur_score = best_score = num_no_ans
    best_thresh = 0.0
    for qid in sorted(na_probs, key=lambda k: na_probs[k]):
        diff = scores[qid] if qid_to_has_ans[qid] else (-1 if preds[qid] else 0)
        cur_score += diff
        if cur_score > best_score:
            best_score, best_thresh = cur_score, na_probs[qid]
    return best_score / len(scores), best_thresh


texts = st.lists(
    st.sampled_from(["a", "the", "The", "An", "cat", "Cat,", "dog.", "-", "U.S.", "in", "Île", "  ", "'s"]), max_size=6
).map(" ".join)


@given(said=texts, true=st.lists(texts, min_size=1, max_size=3))
def test_words_are_scored_as_evaluate_v2_does(said: str, true: list[str]) -> None:
    golds = [one for one in true if normalize_answer(one)] or [""]
    assert best(exact_words, said, true) == max(int(normalize_answer(g) == normalize_answer(said)) for g in golds)
    assert best(f1_words, said, true) == pytest.approx(max(compute_f1(g, said) for g in golds))


def test_no_true_answer_means_that_silence_is_right() -> None:
    assert best(f1_words, "", []) == best(exact_words, "the", []) == 1
    assert best(f1_words, "cat", []) == 0


def official_cmrc_f1(ans: str, prediction: str) -> float:
    """cmrc2018_evaluate.py, for answers that NLTK has no part in."""

    def segments(text: str) -> list[str]:
        return [char for char in text.lower().strip() if char not in "，。：《》、"]

    one, other = segments(ans), segments(prediction)
    m = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    longest = 0
    for i in range(len(one)):
        for j in range(len(other)):
            if one[i] == other[j]:
                m[i + 1][j + 1] = m[i][j] + 1
                longest = max(longest, m[i + 1][j + 1])
    if longest == 0:
        return 0.0
    precision, recall = longest / len(other), longest / len(one)
    return 2 * precision * recall / (precision + recall)


chinese = st.lists(st.sampled_from("中文字好，。《"), min_size=1, max_size=8).map("".join)


@given(said=chinese, true=chinese)
def test_characters_are_scored_as_cmrc_does(said: str, true: str) -> None:
    if set(said + true) & set("中文字好"):
        assert f1_characters(said, true) == pytest.approx(official_cmrc_f1(true, said))
    assert exact_characters(said, true) == (re.sub("[，。《]", "", said) == re.sub("[，。《]", "", true))
    assert is_chinese([said]) == bool(set(said) & set("中文字好"))


def test_words_among_chinese_characters_count_as_one() -> None:
    assert f1_characters("1949年", "1949年10月") == pytest.approx(2 * 2 / (2 + 4))
    assert exact_characters("Windows，系统", "windows系统") == 1
    assert not is_chinese(["a 中 bcd"]) and is_chinese(["中文 a"])


rows = st.lists(
    st.tuples(st.integers(-6, 6).map(lambda n: n / 4), st.sampled_from([0.0, 0.5, 1.0]), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(rows)
def test_the_best_threshold_is_the_best_of_all(rows: list[tuple[float, float, bool]]) -> None:
    margins = np.array([margin for margin, _, _ in rows])
    answered = np.array([score if has else 0.0 for _, score, has in rows])
    silent = np.array([0.0 if has else 1.0 for _, _, has in rows])

    def mean(threshold: float) -> float:
        return float(np.where(margins > threshold, answered, silent).mean())

    threshold, score = best_threshold(margins, answered, silent)
    assert mean(threshold) == pytest.approx(score)
    assert score == pytest.approx(max(mean(value) for value in np.arange(-3, 3, 0.125)))
    names = {str(place): bool(has) for place, (_, _, has) in enumerate(rows)}
    if len(set(margins)) == len(margins):  # theirs goes wrong at equal ones
        theirs, _ = find_best_thresh(
            dict.fromkeys(names, "x"),
            {name: float(score) for name, score in zip(names, np.where(silent, 0, answered))},
            dict(zip(names, -margins)),
            names,
        )
        assert score == pytest.approx(theirs)


def answer(text: str, margin: float | None, threshold: float = 0.0) -> AnswerPrediction:
    one = AnswerCandidate(text, 0, len(text), 1.0, 0.6)
    none = AnswerCandidate("", -1, -1, 0.0, 0.4)
    said = one if margin is None or margin > threshold else none
    return AnswerPrediction(value=said.text, chosen=said, candidates=(one, none), margin=margin)


def test_both_kinds_of_questions_have_their_scores() -> None:
    records = [
        Question(number=0, texts=("q", "p"), label=(Gold("red cat", 0), Gold("cat", 4))),
        Question(number=1, texts=("q", "p"), label=(Gold("dog", 0),)),
        Question(number=2, texts=("q", "p"), label=()),
        Question(number=3, texts=("q", "p"), label=()),
    ]
    predictions = [answer("the cat", 2.0), answer("dog", -1.0), answer("x", 1.0), answer("y", -3.0)]
    scores = Scores(predictions, records, way="words")
    assert scores.means() == {
        "exact": 0.5,
        "f1": 0.5,
        "has_answer_exact": 0.5,
        "has_answer_f1": 0.5,
        "no_answer_exact": 0.5,
        "no_answer_f1": 0.5,
    }
    # Silent at 1.0 too: 3 of 4. Answering the dog as well gains one and loses the first stranger.
    assert scores.best() == {
        "best_exact": 0.75,
        "best_exact_threshold": pytest.approx(-2.0),
        "best_f1": 0.75,
        "best_f1_threshold": pytest.approx(-2.0),
    }
    only = Scores(predictions[:2], records[:2], way="words")
    assert set(only.means()) == {"exact", "f1"}
