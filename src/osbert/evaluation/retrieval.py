"""Search measured: the documents that a system ranks for each query, scored by judgements, as trec_eval scores them.

A ranking has its documents by falling score, compared as float32, and equal ones by falling id: trec_eval's rule, which
needs no order of the corpus. A query that has judgements and no ranking scores 0 (trec_eval -c). Systems are compared
query by query: Fisher's randomization test of their difference, which Smucker et al. (2007) recommend, and a bootstrap
interval over the same samples of queries for all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError, nearest
from osbert.evaluation.bootstrap import ScoreDifference, bootstrap_means, holm, percentiles, randomization_test
from osbert.tasks.ranking_measures import Floats, average_precision, ndcg, reciprocal_rank

KINDS = ("ndcg", "map", "mrr", "recall", "precision")
MEASURES = ("ndcg@10", "map", "mrr", "recall@10", "recall@100", "precision@10")
"""The measures of a search unless others are chosen; the first is the criterion, by which systems are tested."""
SPELLINGS = {"p": "precision", "recip_rank": "mrr", "ndcg_cut": "ndcg", "map_cut": "map"}
"""Other names of measures, trec_eval's among them."""
_NAME = re.compile(r"([a-z_]+?)(?:[@_](\d+))?")

Judgements = Mapping[str, Mapping[str, float]]
"""The relevance of judged documents: query id -> document id -> relevance; one of 0 or less is not relevant."""


@dataclass(frozen=True)
class Measure:
    """A measure of the first `cutoff` documents of a ranking; of all if it is 0."""

    kind: str
    cutoff: int = 0

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the measure of a name such as "ndcg@10". Raises UserError if there is none.

        >>> Measure.of("nDCG@10").name, Measure.of("P_5").name, Measure.of("recip_rank").name
        ('ndcg@10', 'precision@5', 'mrr')
        """
        match = _NAME.fullmatch(name.strip().lower())
        kind = SPELLINGS.get(match[1], match[1]) if match else ""
        if match is None or kind not in KINDS or match[2] == "0":
            raise UserError(
                f"There is no measure '{name}': it is one of {', '.join(KINDS)}, with a number of documents behind it, "
                f"such as ndcg@10.{nearest(kind, KINDS)}",
                code="invalid-value",
            )
        if kind in ("recall", "precision") and not match[2]:
            raise UserError(
                f"The measure '{name}' needs a number of documents, such as {kind}@10.", code="invalid-value"
            )
        return cls(kind, int(match[2] or 0))

    @property
    def name(self) -> str:
        """The name, such as "ndcg@10"."""
        return f"{self.kind}@{self.cutoff}" if self.cutoff else self.kind

    def score(self, relevance: Floats, judged: Floats) -> float:
        """Return the score of a ranking, from 0 to 1.

        `relevance` (n,): of the ranked documents, 0 if not judged. `judged` (m,): of all judged documents. 0 if none is
        relevant.

        >>> Measure.of("recall@2").score(np.array([0.0, 3.0, 1.0]), np.array([3.0, 1.0, 1.0, 0.0]))
        0.3333333333333333
        """
        relevance, judged = relevance[: self.cutoff or None].clip(min=0), judged.clip(min=0)
        descending = -np.arange(len(relevance), dtype=np.float64)  # an order without ties
        if self.kind == "ndcg":
            return ndcg(descending, relevance, self.cutoff or max(len(relevance), len(judged)), judged)
        if self.kind == "map":
            return average_precision(descending, relevance, judged)
        if self.kind == "mrr":
            return reciprocal_rank(descending, relevance)
        hits = int((relevance > 0).sum())
        return hits / max(1, self.cutoff if self.kind == "precision" else int((judged > 0).sum()))


@dataclass(frozen=True)
class RankedDocuments:
    """The documents (n) that were retrieved for a query, best first, and their scores (n,)."""

    documents: Sequence[str] = ()
    scores: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))

    @classmethod
    def of(cls, documents: Sequence[str], scores: Iterable[float]) -> Self:
        """Return documents in trec_eval's order: by falling score in float32, then by falling id.

        >>> RankedDocuments.of(["a", "c", "b"], [1.0, 0.5, 1.0]).documents
        ['b', 'a', 'c']
        """
        singles = np.array([*scores], np.float32)
        order = sorted(range(len(documents)), key=lambda index: (singles[index], documents[index]), reverse=True)
        return cls([documents[index] for index in order], singles[order])


Rankings = Mapping[str, RankedDocuments]
"""The ranking of each query, by its id."""


@dataclass(frozen=True, kw_only=True)
class SystemScores:
    """The scores of a system: means over the queries by measure, their 95% intervals, and those of each query."""

    name: str
    measures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    by_query: dict[str, dict[str, float]] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SystemTest:
    """Two systems compared query by query.

    `score`: the difference of the criterion's means, its 95% bootstrap interval, and the p-value of the randomization
    test. `p_value`: that with Holm's correction for the number of pairs.
    """

    first: str
    second: str
    score: ScoreDifference
    p_value: float


def score_systems(
    systems: Mapping[str, Rankings], judgements: Judgements, measures: Sequence[Measure]
) -> tuple[list[SystemScores], list[SystemTest]]:
    """Return the scores of each system on all judged queries, and the test of each pair by the first measure.

    Intervals are percentiles of the means over 1,000 samples of the queries, the same ones for all systems; with a
    single query they are NaN.
    """
    queries = list(judgements)
    tables = {name: _score_queries(rankings, judgements, measures) for name, rankings in systems.items()}
    samples = {name: bootstrap_means(table) for name, table in tables.items()}  # (R, K) each
    names = [measure.name for measure in measures]
    scores = []
    for system, table in tables.items():
        bounds = [percentiles(column) if len(queries) > 1 else (np.nan, np.nan) for column in samples[system].T]
        scores.append(
            SystemScores(
                name=system,
                measures=dict(zip(names, table.mean(axis=0).tolist())),
                intervals=dict(zip(names, bounds)),
                by_query={query: dict(zip(names, row)) for query, row in zip(queries, table.tolist())},
            )
        )
    tests = []
    for first, second in itertools.combinations(systems, 2):
        differences = tables[first][:, 0] - tables[second][:, 0]
        score = ScoreDifference(
            difference=float(differences.mean()),
            interval=percentiles(samples[first][:, 0] - samples[second][:, 0]),
            p_value=randomization_test(differences),
        )
        tests.append(SystemTest(first=first, second=second, score=score, p_value=score.p_value))
    corrected = holm([test.p_value for test in tests])
    return scores, [replace(test, p_value=p_value) for test, p_value in zip(tests, corrected, strict=True)]


def _score_queries(rankings: Rankings, judgements: Judgements, measures: Sequence[Measure]) -> Floats:
    """Return the scores (Q, K) of each judged query by each measure."""
    table = np.zeros((len(judgements), len(measures)))
    for row, (query, judged) in zip(table, judgements.items()):
        documents = rankings.get(query, RankedDocuments()).documents
        relevance = np.array([judged.get(document, 0) for document in documents], np.float64)
        values = np.array([*judged.values()], np.float64)
        row[:] = [measure.score(relevance, values) for measure in measures]
    return table
