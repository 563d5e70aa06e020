"""Scores of generated texts: ROUGE, BLEU and exact match, of one text and of many.

ROUGE (Lin 2004) is the overlap of a text with a reference in words, pairs of words, and words in order; the words and
the scores are those of Google's rouge-score without its stemmer. BLEU (Papineni et al. 2002) is the precision of texts'
runs of one to four words against references; the words and the score are those of sacrebleu's default (Post 2018): the
13a tokenizer, case kept, exponential smoothing of orders without a match. Tests hold both equal.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

_OTHER = re.compile(r"[^a-z0-9]+")


def rouge_words(text: str) -> list[str]:
    """Return the words to compare: runs of lower-case Latin letters and digits. Other scripts have none.

    >>> rouge_words("Don't panic, Zoë!")
    ['don', 't', 'panic', 'zo']
    """
    return _OTHER.sub(" ", text.lower()).split()


def rouge_n(guess: Sequence[str], reference: Sequence[str], n: int) -> float:
    """Return the F1 of the multisets of two texts' runs of `n` words.

    >>> round(rouge_n("the cat sat".split(), "the cat sat down".split(), 2), 3)
    0.8
    """
    guess_runs, reference_runs = (Counter(zip(*(words[start:] for start in range(n)))) for words in (guess, reference))
    return _f1((guess_runs & reference_runs).total(), guess_runs.total(), reference_runs.total())


def rouge_l(guess: Sequence[str], reference: Sequence[str]) -> float:
    """Return the F1 of the longest common subsequence of two texts' words.

    >>> round(rouge_l("a b c d".split(), "a x c d".split()), 3)
    0.75
    """
    return _f1(common_subsequence(guess, reference), len(guess), len(reference))


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, with bit-parallel rows (Hyyrö 2004).

    Bit i of a row is 0 if the table of lengths increases from column i to the next. One addition yields the next row;
    its carries replace a loop over columns.

    >>> common_subsequence("abcbdab", "bdcaba")
    4
    """
    positions: dict[str, int] = {}
    for position, word in enumerate(first):
        # The set of each word's positions, as bits of an integer of any length.
        positions[word] = positions.get(word, 0) | 1 << position
    every = (1 << len(first)) - 1
    row = every
    for word in second:
        matches = row & positions.get(word, 0)
        row = (row + matches) | (row - matches)
    # The sums carry beyond the last column: mask these bits. The length is the number of 0 bits.
    return len(first) - (row & every).bit_count()


def _f1(shared: int, guess_size: int, reference_size: int) -> float:
    return 2 * shared / (guess_size + reference_size) if shared else 0.0


ORDER = 4
"""Words of the longest runs that are compared."""
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_SPLITS = (
    (re.compile(r"([{-~\[-` -&(-+:-@/])"), r" \1 "),  # punctuation and symbols but for ' - . and ,
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),  # a period or comma that no digit precedes
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),  # or follows
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


@lru_cache(maxsize=2**16)
def bleu_words(text: str) -> tuple[str, ...]:
    """Return the words of a text by the rules of mteval-v13a, the script of the WMT evaluations.

    >>> bleu_words("He paid 1,000.50 dollars, didn't he?")
    ('He', 'paid', '1,000.50', 'dollars', ',', "didn't", 'he', '?')
    """
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    text = f" {text} "
    for pattern, spaced in _SPLITS:
        text = pattern.sub(spaced, text)
    return tuple(text.split())


@dataclass(frozen=True, kw_only=True)
class BleuCounts:
    """Counts of one text: matched runs of 1 to ORDER words, all its runs, its length and the reference's length."""

    shared: tuple[int, ...]
    runs: tuple[int, ...]
    length: int
    reference: int

    @classmethod
    def of(cls, guess: str, references: Sequence[str]) -> BleuCounts:
        """Count a text. The matches of a run are clipped to the most that one reference has.

        The reference length is the one nearest to the text's, the shorter in a tie.
        """
        words = bleu_words(guess)
        others = [bleu_words(reference) for reference in references]
        allowed: Counter[tuple[str, ...]] = Counter()
        for other in others:
            # | of Counters is the maximum of the counts, & below the minimum.
            allowed |= _runs(other)
        run_counts = _runs(words)
        shared = [0] * ORDER
        for run, count in (run_counts & allowed).items():
            # Index k holds the runs of k + 1 words.
            shared[len(run) - 1] += count
        lengths = sorted(map(len, others), key=lambda length: (abs(length - len(words)), length))
        return cls(
            shared=tuple(shared),
            runs=tuple(max(0, len(words) - order) for order in range(ORDER)),
            length=len(words),
            reference=lengths[0],
        )


def bleu(counts: Iterable[BleuCounts]) -> float:
    """Return the corpus BLEU of some texts, 0 to 1: the geometric mean of the precisions of runs.

    It is multiplied by the brevity penalty exp(1 - reference / length) if the texts are shorter (equation 3).

    >>> round(bleu([BleuCounts.of("the cat sat on the mat", ["the cat sat on the mat ."])]), 4)
    0.8465
    """
    rows = list(counts)
    shared = [sum(row.shared[order] for row in rows) for order in range(ORDER)]
    runs = [sum(row.runs[order] for row in rows) for order in range(ORDER)]
    length, reference = sum(row.length for row in rows), sum(row.reference for row in rows)
    if not any(shared) or not all(runs):
        return 0.0
    logs, halves = 0.0, 1
    for hits, total in zip(shared, runs):
        if not hits:  # counted as 1/2 of a match, of the next order without any 1/4, and so on
            halves *= 2
        logs += math.log((hits or 1 / halves) / total)
    brevity = min(0.0, 1 - reference / length)
    return math.exp(brevity + logs / ORDER)


def _runs(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[start : start + size]) for size in range(1, ORDER + 1) for start in range(len(words) - size + 1)
    )


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
