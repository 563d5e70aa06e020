"""Several annotators of the same rows: their agreement, the reliability of each, and the labels that votes give.

Agreement is Krippendorff's alpha for nominal data (Krippendorff 2004, section 11.3). Reliability and labels are those
of Dawid and Skene (1979): each annotator has a table of the probability of each answer given the true label, which the
EM algorithm finds together with the probabilities of the true labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Votes = Sequence[Mapping[str, str]]
"""Of each row the label that each annotator gave, by annotator."""

PRIOR_VOTES = 10.0
"""Pseudo-votes of each annotator for each true label, which are right as often as all votes are. Without them few votes
make probabilities 0 and 1. Of 50 simulated rows the true labels are then less likely than by the fractions of the
votes; with them they are more likely with 2 and 5 labels, and about as likely with 20 labels and 3 annotators."""
STEPS, CLOSE = 1000, 1e-9
"""Most steps of EM, and the largest change of a probability after which it ends."""


def krippendorff_alpha(votes: Votes) -> float:
    """Return the agreement of the votes: 1 for full agreement, 0 for that of chance; NaN if there is no pair of votes.

    Rows with one vote do not count. It is NaN, too, if all votes are for one label.

    >>> round(krippendorff_alpha([{"a": "x", "b": "x"}, {"a": "x", "b": "y"}, {"a": "y", "b": "y"}]), 4)
    0.4444
    """
    rows = [Counter(row.values()) for row in votes if len(row) > 1]
    # Of the coincidences o(c, k) only the diagonal is needed: pairs of equal votes, 1 / (n - 1) each in a row of n.
    equal = math.fsum(count * (count - 1) / (row.total() - 1) for row in rows for count in row.values())
    totals = Counter(label for row in rows for label in row.elements())
    every = totals.total()
    differ = every**2 - sum(count**2 for count in totals.values())
    return 1 - (every - 1) * (every - equal) / differ if differ else math.nan


@dataclass(frozen=True, kw_only=True, eq=False)
class DawidSkene:
    """Annotators of n rows with K labels: tables (A, K, K) of the probability of an answer given the true label.

    `prior` (K,): the frequency of each label. `probabilities` (n, K): those of each row's true label.
    """

    votes: Votes
    annotators: tuple[str, ...]
    labels: tuple[str, ...]
    tables: Floats
    prior: Floats
    probabilities: Floats

    @classmethod
    def fit(cls, votes: Votes, *, prior_votes: float = PRIOR_VOTES) -> DawidSkene:
        """Fit tables and labels by EM, which begins at the fractions of the votes. Each row has at least one vote.

        >>> votes = [{"a": "x", "b": "x", "c": "y"}, {"a": "y", "b": "y", "c": "y"}, {"a": "x", "b": "x", "c": "x"}]
        >>> model = DawidSkene.fit(votes * 10)
        >>> model.posteriors[0]["x"] > 0.9, dict(zip(model.annotators, model.reliability.round(1).tolist()))
        (True, {'a': 1.0, 'b': 1.0, 'c': 0.7})
        """
        from scipy.sparse import csr_array

        annotators = tuple(dict.fromkeys(name for row in votes for name in row))
        labels = tuple(sorted({label for row in votes for label in row.values()}))
        columns = {pair: index for index, pair in enumerate(product(annotators, labels))}
        pairs = [(index, columns[pair]) for index, row in enumerate(votes) for pair in row.items()]
        shape = (len(votes), len(columns))
        given = csr_array((np.ones(len(pairs)), np.array(pairs, np.int64).T), shape=shape)  # (n, A K)
        size, eye = len(labels), np.eye(len(labels))
        probabilities = given @ np.tile(eye, (len(annotators), 1))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        for _ in range(STEPS):
            prior = probabilities.mean(axis=0)
            counts = (given.T @ probabilities).reshape(-1, size, size).transpose(0, 2, 1)  # (A, K, K)
            right = np.einsum("akk->", counts) / len(pairs)  # the fraction of the votes for the true label
            usual = eye * right + (1 - eye) * (1 - right) / max(size - 1, 1)
            tables = counts + prior_votes * usual + 1e-12
            tables /= tables.sum(axis=2, keepdims=True)
            logs = given @ np.log(tables).transpose(0, 2, 1).reshape(-1, size) + np.log(np.maximum(prior, 1e-300))
            before, probabilities = probabilities, np.exp(logs - logs.max(axis=1, keepdims=True))
            probabilities /= probabilities.sum(axis=1, keepdims=True)
            if np.abs(probabilities - before).max() < CLOSE:
                break
        return cls(
            votes=votes,
            annotators=annotators,
            labels=labels,
            tables=tables,
            prior=prior,
            probabilities=probabilities,
        )

    @property
    def posteriors(self) -> list[dict[str, float]]:
        """Return the probabilities of each row's labels, by name; those below 1e-6 are left out."""
        values = np.where(self.probabilities < 1e-6, 0, self.probabilities)
        values = values / values.sum(axis=1, keepdims=True)
        return [{label: value for label, value in zip(self.labels, row) if value} for row in values.tolist()]

    @cached_property
    def reliability(self) -> Floats:
        """The probability (A,) that an annotator gives the true label of a row."""
        return np.asarray(np.einsum("k,akk->a", self.prior, self.tables))

    def describe(self) -> str:
        """Describe the agreement of the annotators and the reliability of each, the least reliable first."""
        order = np.argsort(self.reliability, kind="stable").tolist()
        listed = [f"{self.annotators[index]} {self.reliability[index]:.2f}" for index in order]
        more = f" and {len(listed) - 10} more" if len(listed) > 10 else ""
        return (
            f"{len(self.annotators)} annotators agree by Krippendorff's alpha {krippendorff_alpha(self.votes):.2f}; "
            f"they give the true label with the probability {', '.join(listed[:10])}{more}"
        )

    def table(self) -> list[list[str]]:
        """Return for each annotator the number of votes, the reliability, and the most frequent confusion."""
        rows = [["annotator", "votes", "probability of the true label", "most frequent confusion"]]
        for index, name in enumerate(self.annotators):
            confusion = self.prior[:, None] * self.tables[index]
            np.fill_diagonal(confusion, 0.0)
            true, answer = np.unravel_index(confusion.argmax(), confusion.shape)
            wrong = f"{self.labels[answer]} for {self.labels[true]} ({self.tables[index, true, answer]:.0%})"
            count = sum(name in row for row in self.votes)
            rows.append([name, f"{count:,}", f"{self.reliability[index]:.3f}", wrong if len(self.labels) > 1 else ""])
        return rows
