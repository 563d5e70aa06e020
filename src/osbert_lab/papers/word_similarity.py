"""Intrinsic evaluation of word vectors: correlation with human judgements of similarity, and analogies."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError

QUESTIONS = 512
"""Number of analogies that are answered together."""
MOST = 30_000
"""Number of candidate words for analogies, the first ones of the vocabulary, as in word2vec's tool."""

Pair = tuple[str, str, float]


@dataclass(frozen=True, kw_only=True)
class WordScore:
    """A score, and the number of the `given` items whose words all have vectors (`used`)."""

    score: float
    used: int
    given: int

    def __str__(self) -> str:
        """Format the score and the counts."""
        return f"{self.score:.3f} ({self.used:,} of {self.given:,})"


@dataclass(frozen=True)
class WordTable:
    """Words and their vectors (V, D), normalised to length 1; a vector of zeros counts as missing.

    >>> table = WordTable(["a", "b", "c"], np.array([[2.0, 0], [0.6, 0.8], [0, 1]]))
    >>> str(table.similarity([("a", "b", 9), ("a", "c", 1), ("b", "c", 10), ("a", "x", 5)]))
    '1.000 (3 of 4)'
    """

    words: Sequence[str]
    vectors: NDArray[np.floating]

    def __post_init__(self) -> None:
        """Normalise the vectors to length 1."""
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        object.__setattr__(self, "vectors", self.vectors / np.where(lengths > 0, lengths, 1))

    def word_indices(self) -> Mapping[str, int]:
        """Return the index of each word that has a vector."""
        has_vector = np.abs(self.vectors).max(axis=1) > 0
        return {word: index for index, word in enumerate(self.words) if has_vector[index]}

    def similarity(self, pairs: Iterable[Pair]) -> WordScore:
        """Return Spearman's correlation of cosines with human scores of pairs of words."""
        from scipy.stats import spearmanr

        indices, pairs = self.word_indices(), [*pairs]
        known = [(indices[a], indices[b], score) for a, b, score in pairs if a in indices and b in indices]
        if len(known) < 2:
            return WordScore(score=float("nan"), used=len(known), given=len(pairs))
        first, second, scores = (np.array(column) for column in zip(*known))
        cosines = (self.vectors[first] * self.vectors[second]).sum(1)
        return WordScore(score=float(spearmanr(cosines, scores).statistic), used=len(known), given=len(pairs))

    def analogies(self, questions: Iterable[Sequence[str]]) -> WordScore:
        """Return the fraction of questions (a, b, c, d) in which d is nearest to b - a + c, excluding a, b and c.

        This is 3CosAdd (Mikolov et al. 2013c, section 4). Questions with a word that has no vector are ignored.
        """
        indices, questions = self.word_indices(), [*questions]
        known = [[indices[word] for word in words] for words in questions if all(word in indices for word in words)]
        right = 0
        for start in range(0, len(known), QUESTIONS):
            a, b, c, d = np.array(known[start : start + QUESTIONS]).T
            cosines = (self.vectors[b] - self.vectors[a] + self.vectors[c]) @ self.vectors[:MOST].T
            for given in (a, b, c):
                # Question words beyond the candidates have no column to exclude.
                rows = np.flatnonzero(given < cosines.shape[1])
                cosines[rows, given[rows]] = -np.inf
            right += int((cosines.argmax(1) == d).sum())
        return WordScore(score=right / len(known) if known else float("nan"), used=len(known), given=len(questions))


def read_pairs(path: Path) -> list[Pair]:
    """Read the pairs of a file such as WordSim-353's (commas) or SimLex-999's (tabs, the score in its column).

    Words become lower case. Raises UserError with the line that lacks two words or a score.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.reader(file, delimiter="," if path.suffix == ".csv" else "\t")]
    column = rows[0].index("SimLex999") if rows and "SimLex999" in rows[0] else 2
    pairs = []
    for number, row in enumerate(rows[1:], 2):
        try:
            pairs.append((row[0].lower(), row[1].lower(), float(row[column])))
        except (IndexError, ValueError):
            raise UserError(
                f"{path}, line {number}: expected two words and a score, not {row}.", code="unusable-row"
            ) from None
    return pairs


def read_questions(path: Path) -> dict[str, list[list[str]]]:
    """Read the analogies of a file by section: lines of four words, after a line with a colon and the section.

    Words become lower case. Raises UserError with the line that has not four words.
    """
    sections: dict[str, list[list[str]]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.lower().split()
        if line.startswith(":"):
            section = sections.setdefault(line[1:].strip(), [])
        elif len(words) == 4 and sections:
            section.append(words)
        elif words:
            raise UserError(f"{path}, line {number}: expected four words, not {line[:60]!r}.", code="unusable-row")
    return sections
