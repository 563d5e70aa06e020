"""A query with its candidates, and predictions of their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from osbert.errors import Problems
from osbert.tasks import Prediction, Record
from osbert.terminal import one_line


@dataclass(frozen=True, kw_only=True)
class QueryCandidates(Record):
    """A query and its candidates, which are its `texts`; `label` is the relevance of each candidate, a tuple.

    `places`: the origin of each candidate, for messages.
    """

    places: tuple[str, ...] = ()

    @property
    def documents(self) -> tuple[str, ...]:
        """Return the candidates, without the query before them."""
        return self.texts[1:]

    @property
    def can_be_ranked(self) -> bool:
        """Return whether two candidates have different relevance."""
        return bool(self.label) and min(self.label) < max(self.label)


@dataclass(frozen=True, kw_only=True)
class CandidateScore(Prediction):
    """The prediction for one candidate: `value` is its score, a logit; `probability` is the logistic function of it.

    `rank`: its rank, from 1. `index`: its index among the candidates in their original order, from 0.
    """

    rank: int
    index: int
    document: str
    probability: float

    def as_dict(self) -> dict[str, Any]:
        fields = {"prediction": self.value, "probability": self.probability, "rank": self.rank}
        return {**fields, "truncated": self.truncated}

    def item(self) -> dict[str, Any]:
        """Return it as an item of a ranking."""
        return {"rank": self.rank, "index": self.index, "score": self.value, "probability": self.probability}


@dataclass(frozen=True, kw_only=True)
class Ranking(Prediction):
    """The candidates of a query: `value` holds their scores, in the order in which the candidates were given.

    `candidates`: the prediction for each, in the same order.
    """

    candidates: tuple[CandidateScore, ...] = ()

    @classmethod
    def of(cls, candidates: Sequence[CandidateScore]) -> Self:
        """Return the predictions for some candidates, in the order in which they were given, with their ranks."""
        candidate_scores = tuple(replace(candidate, index=index) for index, candidate in enumerate(candidates))
        cut = sum(candidate.truncated for candidate in candidate_scores)
        return cls(
            value=tuple(candidate.value for candidate in candidate_scores), candidates=candidate_scores, truncated=cut
        )

    @cached_property
    def ranked(self) -> tuple[CandidateScore, ...]:
        """Return the candidates, the highest score first; of equal scores the one that was given first."""
        return tuple(sorted(self.candidates, key=lambda candidate: candidate.rank))

    @property
    def unread(self) -> tuple[int, ...]:
        return tuple(candidate.truncated for candidate in self.candidates)

    @property
    def answer(self) -> str:
        return f"scored {', '.join(f'{score:.4f}' for score in self.value)}"

    def as_dict(self) -> dict[str, Any]:
        items = [
            {**candidate.item(), "document": candidate.document, "truncated": candidate.truncated}
            for candidate in self.ranked
        ]
        return {"prediction": items, "truncated": self.truncated}

    def lines(self) -> list[str]:
        return [
            f"{candidate.rank:4}. {candidate.value:9.4f}  {candidate.probability:7.2%}  "
            f"[{candidate.index}]  {candidate.document}"
            for candidate in self.ranked
        ]


def ranking(scores: Sequence[float], documents: Sequence[str], truncated: Sequence[int]) -> Ranking:
    """Return the ranking of documents by their scores (n,); `truncated` (n,): pieces of each that were not read.

    >>> [one.rank for one in ranking([0.5, 2.0, 0.5], ["a", "b", "c"], [0, 0, 0]).candidates]
    [2, 1, 3]
    """
    from scipy.special import expit

    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    ranks = {index: rank for rank, index in enumerate(order, 1)}
    candidates = [
        CandidateScore(
            value=float(score),
            rank=ranks[index],
            index=index,
            document=documents[index],
            probability=float(expit(score)),
            truncated=truncated[index],
        )
        for index, score in enumerate(scores)
    ]
    return Ranking.of(candidates)


def by_query(records: Iterable[Record], problems: Problems) -> list[QueryCandidates]:
    """Return the records of rows as one record for each query, in the order in which the queries come.

    A repeated document of a query counts once. Reports repeated documents with different relevance.
    """
    groups: dict[str, list[QueryCandidates]] = {}
    for record in records:
        assert isinstance(record, QueryCandidates)
        groups.setdefault(record.texts[0], []).append(record)
    return [_join_records(group, problems) for group in groups.values()]


def _join_records(group: Sequence[QueryCandidates], problems: Problems) -> QueryCandidates:
    first: dict[str, tuple[Any, str]] = {}
    for record in group:
        labels = record.label or (None,) * len(record.documents)
        for document, label in zip(record.documents, labels, strict=True):
            known, location = first.setdefault(document, (label, record.place))
            if known != label:
                texts = [f"'{one_line(text):.60}'" for text in (document, record.texts[0])]
                problems.add(
                    f"{record.place}: the document {texts[0]} has the relevance {label:g} for the query {texts[1]}, "
                    f"but {known:g} in {location}. Keep one of them.",
                    code="unusable-row",
                )
    labels = tuple(label for label, _ in first.values())
    return replace(
        group[0],
        texts=(group[0].texts[0], *first),
        label=None if None in labels else labels,
        places=tuple(location for _, location in first.values()),
    )
