"""Scores of generated texts: ROUGE, BLEU and exact match, of one text and of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

from osbert.tasks.kinds.generate.bleu import BleuCounts, bleu
from osbert.tasks.kinds.generate.rouge import rouge_l, rouge_n, rouge_words


@dataclass(frozen=True, kw_only=True)
class TextScore:
    """The scores of one text, 0 to 1: for each score the best reference counts. `counts` are for BLEU."""

    rouge1: float
    rouge2: float
    rougeL: float
    exact_match: float
    counts: BleuCounts

    @classmethod
    def of(cls, guess: str, references: Sequence[str]) -> TextScore:
        """Score a text. It is an exact match if it equals a reference up to spaces."""
        words = rouge_words(guess)
        others = [rouge_words(reference) for reference in references]
        plain = " ".join(guess.split())
        return cls(
            rouge1=max(rouge_n(words, other, 1) for other in others),
            rouge2=max(rouge_n(words, other, 2) for other in others),
            rougeL=max(rouge_l(words, other) for other in others),
            exact_match=float(any(plain == " ".join(reference.split()) for reference in references)),
            counts=BleuCounts.of(guess, references),
        )


MEANS = ("rouge1", "rouge2", "rougeL", "exact_match")
"""The scores that are averaged over texts; BLEU is computed on all texts together."""


# Intervals draw the same rows hundreds of times: each row is compared once.
@lru_cache(maxsize=2**16)
def text_score(guess: str, references: tuple[str, ...]) -> TextScore:
    """Return the scores of a text against its references, cached."""
    return TextScore.of(guess, references)


def text_scores(scores: Sequence[TextScore]) -> dict[str, float]:
    """Return the scores of some texts by name, 0 to 1."""
    means = {name: fmean(getattr(score, name) for score in scores) for name in MEANS}
    return {**means, "bleu": bleu(score.counts for score in scores)}
