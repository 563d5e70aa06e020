"""BLEU (Papineni et al. 2002): the precision of texts' runs of one to four words against references.

The words and the score are those of sacrebleu's default (Post 2018): the 13a tokenizer, case kept, exponential
smoothing of orders without a match. Tests hold them equal.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
