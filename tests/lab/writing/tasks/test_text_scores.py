"""ROUGE and BLEU are those of rouge-score and sacrebleu."""

from __future__ import annotations

import random
from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as some

from osbert_lab.writing.generate.scores import (
    BleuCounts,
    bleu,
    bleu_words,
    common_subsequence,
    rouge_l,
    rouge_n,
    rouge_words,
)

WORDS = [
    "the",
    "The",
    "cat",
    "sat,",
    "on",
    "a",
    "mat.",
    "1,000.5",
    "x-ray",
    "(it)",
    "don't",
    "Zoë",
    "3-4",
    "&amp;",
    "über",
]


def _texts(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(14))) for _ in range(count)]


def test_rouge_is_that_of_rouge_score() -> None:
    rouge_score = pytest.importorskip("rouge_score.rouge_scorer", reason="rouge-score is not installed")
    scorer = rouge_score.RougeScorer(["rouge1", "rouge2", "rougeL"])
    for guess, reference in zip(_texts(60, 1), _texts(60, 2)):
        theirs = scorer.score(reference, guess)
        ours, other = rouge_words(guess), rouge_words(reference)
        found = [rouge_n(ours, other, 1), rouge_n(ours, other, 2), rouge_l(ours, other)]
        assert found == pytest.approx([theirs[name].fmeasure for name in ("rouge1", "rouge2", "rougeL")])


@pytest.mark.parametrize("most", [1, 3])
def test_bleu_is_that_of_sacrebleu(most: int) -> None:
    sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")
    draw = random.Random(most)
    for seed in range(6):
        guesses = _texts(8, seed)
        references = [_texts(draw.randint(1, most), 100 * seed + row + 7) for row in range(8)]
        streams = [list(one) for one in zip_longest(*references)]  # None where a row has fewer references
        theirs = sacrebleu.corpus_bleu(guesses, streams).score
        assert bleu(map(BleuCounts.of, guesses, references)) * 100 == pytest.approx(theirs)


def test_the_words_are_those_of_13a() -> None:
    sacrebleu = pytest.importorskip("sacrebleu.tokenizers.tokenizer_13a", reason="sacrebleu is not installed")
    theirs = sacrebleu.Tokenizer13a()
    for text in [*_texts(20, 5), 'He said: "3.5% of 1,000 - no, 10-15!"', "a<skipped>b -\nc\nd &lt;x&gt; $5.00/day."]:
        assert " ".join(bleu_words(text)) == theirs(text.rstrip())


@given(some.lists(some.sampled_from("abc"), max_size=9), some.lists(some.sampled_from("abc"), max_size=9))
def test_the_common_subsequence_is_that_of_the_plain_table(first: list[str], second: list[str]) -> None:
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    assert common_subsequence(first, second) == table[-1][-1]


@pytest.mark.parametrize("guess", ["", "the", "xyz abc def ghi"])
def test_a_text_without_matches_scores_0(guess: str) -> None:
    assert bleu([BleuCounts.of(guess, ["nothing of this is in it"])]) == 0
    assert rouge_l(rouge_words(guess), []) == 0
