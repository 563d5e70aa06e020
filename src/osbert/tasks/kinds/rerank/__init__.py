"""rerank: a cross-encoder that scores each candidate of a query; nDCG and MRR of their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Example, Target
from osbert.data.long_texts import Long, lay_out_behind
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.models.forms import RankingLoss
from osbert.reading.columns import Header
from osbert.reading.table import Origin, Row, Table
from osbert.tasks import Description, Inputs, Prediction, Record, Source, Task
from osbert.tasks.contract import TrainedSentences, no_sentences
from osbert.tasks.edges import Edge, ExplainedScore, Field, require_label
from osbert.tasks.kinds.rerank.columns import FORMS, HEADINGS, CandidateColumns, choose, inputs_by_query, record_of
from osbert.tasks.kinds.rerank.rankings import CandidateScore, QueryCandidates, Ranking, by_query, ranking
from osbert.tasks.ranking_measures import average_precision, ndcg, reciprocal_rank
from osbert.tasks.record import SIDES, RecordOutcome, TextMark
from osbert.tasks.tables import TableDescription, TableSource, TableTask

if TYPE_CHECKING:
    from osbert.models.contract import Backbone, Head
    from osbert.models.forms import Writing
    from osbert.models.sizes import Sizes
    from osbert.text.file_tokenizer import AnyTokenizer

RELEVANCE = "relevance"
"""The name of the score in explanations."""
RANKS = 5
"""Most ranks of relevant candidates that a report lists."""


class CandidateSource(TableSource):
    """Reads tables with queries and documents; the rows of one query become one record."""

    task: Rerank
    forms = FORMS

    @property
    def named(self) -> tuple[str, ...]:
        task = self.task
        return (task.query, task.document, task.label, task.positive, *task.negative, *HEADINGS)

    def columns(self, table: Table, *, labelled: bool) -> CandidateColumns:
        task = self.task
        user_columns = CandidateColumns(
            query=task.query, document=task.document, label=task.label, positive=task.positive, negative=task.negative
        )
        return choose(table.columns, user_columns=user_columns, path=table.called, labelled=labelled)

    def resolve(self) -> Task:
        columns = self.columns(self.open(self.file("train")), labelled=True)
        return self.attach_to(replace(self.task, **asdict(columns)))

    def fit_columns(self, origin: Origin, before: Any, given: Collection[str]) -> dict[str, Any]:
        task, columns = self.task, self.open(origin).columns
        column_set = {*columns}
        names = [name for name in ("query", "document", "label", "positive") if name not in given]
        lost: dict[str, Any] = {name: "" for name in names if getattr(task, name) not in column_set}
        if "negative" not in given and ("positive" in lost or not {*task.negative} <= column_set):
            lost["negative"] = ()
        if "label" not in given and "document" in lost and not Header(columns, "").find("candidate", but=(task.label,)):
            lost["label"] = ""
        return lost

    def record(self, row: Row, columns: CandidateColumns, *, path: str = "") -> QueryCandidates:
        return record_of(row, columns, path=path)

    def read(self, origin: Origin, problems: Problems, *, labelled: bool) -> list[QueryCandidates]:  # type: ignore[override]
        return by_query(super().read(origin, problems, labelled=labelled), problems)

    def inputs(self, data: Origin) -> Inputs:
        return inputs_by_query(super().inputs(data))


class RankingDescription(TableDescription):
    """Describes queries with their candidates."""

    task: Rerank

    def describe_split(self, records: Sequence[Record]) -> str:
        total, without = sum(len(record.texts) - 1 for record in records), len(_without(records))
        parts = [f"{len(records):,} queries with {total:,} candidates"]
        parts += [f"{without:,} without a relevant one, which no score counts"] * (without > 0)
        if alike := _all_relevant(records):
            parts.append(f"{alike:,} queries whose candidates are all relevant: MRR and MAP are 1 whatever the order")
        return "; ".join(parts)

    def remarks(self) -> list[str]:
        return [f"at most {self.task.candidates} candidates of a query are learnt from in a step (--candidates)"]

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> list[list[str]]:
        without = len(_without(records))
        counts = {"queries scored": len(records) - without, "left out: no relevant candidate": without}
        if alike := _all_relevant(records):
            counts["all relevant: MRR and MAP are 1"] = alike
        return [[*counts], [f"{count:,}" for count in counts.values()]]


@dataclass(frozen=True, kw_only=True)
class Rerank(TableTask):
    """Queries, each with its candidates and their relevance: a number >= 0, 0 for irrelevant ones.

    A table has a row for each query and document, with a label; or a query with a relevant document (positive) and
    others (negative). A cell may hold a list of documents, with the list of their labels. Rows of a query form one
    record, and a step (--batch) counts queries. Query and document are a pair of texts with one score.
    """

    values = "relevance"
    edge = Edge(
        kind="rerank",
        call="rerank",
        about="Documents by their relevance to a query, the best first.",
        action="Rank",
        request=(Field(name="query"), Field(name="documents", type="texts")),
        answer=(
            Field(name="ranking", type="ranking", about="The documents by their index in the request, the best first."),
            Field(name="truncated", type="integer", about="Pieces that did not fit and were not read."),
        ),
        cuts=True,
    )
    published_outputs = 1
    row_score: ClassVar[str] = "nDCG"
    numbers: ClassVar[bool] = True
    counted: ClassVar[str] = "queries"
    reader: ClassVar[type[Source]] = CandidateSource
    describer: ClassVar[type[Description]] = RankingDescription
    batching: ClassVar[Literal["sequences", "records", "step"]] = "records"
    sample: ClassVar[str] = '"a query" "a document" "another one"'
    too_long: ClassVar[str] = (
        "{count:,} pieces of the query and its documents more than fit into {length} tokens. Shorten them, or give "
        "--long truncate or head+tail."
    )

    query: str = ""
    """The column with the query; detected by its name if not given."""
    document: str = ""
    """The column with a document, or a list of them; detected by its name if not given."""
    label: str = ""
    """The column with the relevance of the document, or a list; detected by its name if not given."""
    positive: str = ""
    """Instead of document and label: the column with a relevant document, or a list of them."""
    negative: tuple[str, ...] = ()
    """With positive: the column with irrelevant documents, or several columns."""
    loss: RankingLoss = "softmax"
    """softmax: cross-entropy over the candidates of a query, which learns their order and weights queries equally. bce:
    binary cross-entropy of each candidate, with probabilities comparable between queries; one candidate is enough."""
    candidates: int = 16
    """Most candidates of a query in training, which are in memory together. Longer lists are cut to the most relevant
    ones, up to half, and the first ones of the lowest relevance. Evaluation uses all."""
    cutoff: int = 10
    """Number of top candidates for MRR and nDCG."""
    highest: float = 1.0
    """Highest relevance in the training rows, set in training if above 1. With bce a probability is relative to it."""
    prompt: str = ""
    """What is put before each query, such as the instruction that a model was trained with."""
    long: Long = "truncate"
    """What happens if a query and a document do not fit together: truncate cuts the end of the longer one; head+tail
    keeps a quarter from the beginning of a long text and the rest from its end; error rejects them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.candidates < 2:
            raise ValueError(f"candidates must be at least 2, not {self.candidates}")
        if self.cutoff < 1:
            raise ValueError(f"cutoff must be at least 1, not {self.cutoff}")
        if self.long == "window":
            raise ValueError("long = window would give a document several scores: give truncate, head+tail or error")

    @property
    def criterion(self) -> str:
        """Return nDCG, which uses degrees of relevance."""
        return f"ndcg@{self.cutoff}"

    def fit(self, records: Sequence[Record]) -> Self:
        return replace(self, highest=max([1.0, *(max(record.label) for record in records if record.label)]))

    def check(self, records: Sequence[Record], problems: Problems) -> None:
        if not any(isinstance(record, QueryCandidates) and record.can_be_ranked for record in records):
            problems.add(
                f"none of {len(records):,} queries has candidates of different relevance, so there is nothing to rank. "
                "Give queries with relevant and irrelevant documents; for single pairs with a label use classify or "
                "regress.",
                code="nothing-to-learn",
            )

    def lacks(self, record: Record) -> str:
        """Describe why a record is skipped: all of its candidates are equally relevant."""
        ranked = isinstance(record, QueryCandidates) and record.can_be_ranked
        if record.label is None or self.loss == "bce":
            return super().lacks(record)
        return "" if ranked else "candidates of different relevance"

    def record_of(self, texts: Sequence[str]) -> QueryCandidates:
        if len(texts) < 2:
            raise UserError(
                f"The run ranks documents: give a query and one document or more, not {len(texts)} text(s).",
                code="wrong-number-of-texts",
            )
        return QueryCandidates(number=0, texts=tuple(texts))

    # The model.

    def for_model(
        self,
        sizes: Sizes,
        tokenizer: AnyTokenizer,
        *,
        writes: Writing | None = None,
        read_sentences: Callable[[], TrainedSentences | None] = no_sentences,
    ) -> Self:
        """Return the task with the model's default prompt, if none is given."""
        trained = None if self.prompt else read_sentences()
        return replace(self, prompt=trained.prompt(None)) if trained else self

    def encode(self, record: Record, packer: Packer) -> list[Example]:
        """Return a sequence for each candidate; with labels for `candidates` of them, each with a target."""
        query, *documents = record.texts
        query = self.prompt + query
        labels: NDArray[np.float64] | None = None
        if record.label is not None:
            labels = np.array(record.label, np.float64)
            indices = select_candidates(labels, self.candidates)
            documents, labels = [documents[index] for index in indices], labels[indices]
        runs = [packer.run(document) for document in documents]
        examples = lay_out_behind(packer.run(query), runs, packer, long=self.long, record=record.number)
        return (
            examples
            if labels is None
            else [replace(example, targets=target) for example, target in zip(examples, self._targets(labels))]
        )

    def _targets(self, labels: NDArray[np.float64]) -> list[dict[str, Target]]:
        """Return the targets of candidates from their relevance (n,). With softmax only the first has weight, 1."""
        if self.loss == "bce":
            # bce needs probabilities: relevance as a fraction of the highest one.
            fractions = np.minimum(labels / self.highest, 1)
            return [{self.name: Target(labels=fraction[None])} for fraction in fractions.astype(np.float32)]
        # `or 1`: if all are irrelevant, targets are 0 instead of NaN.
        fractions = (labels / (labels.sum() or 1)).astype(np.float32)
        # The loss sums over candidates; a total weight of 1 per query makes its mean a mean over queries.
        weights = np.eye(1, len(labels), dtype=np.float32)[0]
        return [
            {self.name: Target(labels=fraction[None], weights=weight[None])}
            for fraction, weight in zip(fractions, weights)
        ]

    def head(self, backbone: Backbone) -> Head:
        from osbert.models.heads.grouped import RankingHead

        return RankingHead(backbone, target=self.name, loss=self.loss, dropout=backbone.architecture.dropout)

    def decode(self, outputs: Sequence[NDArray[np.floating]], record: Record, examples: Sequence[Example]) -> Ranking:
        scores = [float(output[0]) for output in outputs]
        return ranking(scores, record.texts[1:], [example.truncated for example in examples])

    def explain(
        self, prediction: Prediction, record: Record, examples: Sequence[Example], label: str = ""
    ) -> list[ExplainedScore]:
        """Return the score of the first document of the ranking."""
        assert isinstance(prediction, Ranking)
        first = prediction.ranked[0]
        require_label(label or RELEVANCE, [RELEVANCE])
        # The score is one output of one sequence: weight 1 there, 0 for the other candidates.
        weights = [np.array([float(index == first.index)]) for index in range(len(examples))]
        return [ExplainedScore(label=RELEVANCE, text=first.document, weights=weights)]

    def metrics(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        """Return the means of nDCG, MRR and average precision over the queries that have a relevant candidate.

        They are 0 if there are no such queries.
        """
        query_scores: list[tuple[float, float, float]] = []
        for prediction, record in zip(predictions, records, strict=True):
            scores, relevance = np.array(prediction.value, np.float64), np.array(record.label, np.float64)
            # nDCG is 0 / 0 for a query without a relevant candidate: it is left out of the means.
            if relevance.max() > 0:
                gain, reciprocal = (measure(scores, relevance, self.cutoff) for measure in (ndcg, reciprocal_rank))
                query_scores.append((gain, reciprocal, average_precision(scores, relevance)))
        means = np.mean(query_scores, axis=0).tolist() if query_scores else [0.0, 0.0, 0.0]
        return dict(zip((self.criterion, f"mrr@{self.cutoff}", "map"), means))

    def outcome(self, prediction: Prediction, record: Record) -> RecordOutcome:
        """Return the nDCG of a ranking, NaN if no candidate is relevant; it is right if the first one is relevant."""
        assert isinstance(prediction, Ranking)
        relevance, first = np.array(record.label, np.float64), prediction.ranked[0]
        gain = ndcg(np.array(prediction.value, np.float64), relevance, self.cutoff) if relevance.max() > 0 else math.nan
        relevant = [candidate.rank for candidate in prediction.ranked if record.label[candidate.index] > 0]
        counts = f"{len(relevant)} of {len(prediction.candidates)} are relevant"
        return RecordOutcome(
            truth=f"{counts}, at rank {', '.join(map(str, relevant[:RANKS]))}" if relevant else counts,
            guess=f"first: {first.document:.80}",
            score=gain,
            right=relevant[0] == 1 if relevant else None,
            error=1 - gain if relevant else 0.0,
            confidence=first.probability,
            marks=tuple(
                TextMark(start=0, end=len(candidate.document), of=of, text=1 + candidate.index)
                for of, candidates in zip(SIDES, (prediction.ranked, (first,)))
                for candidate in candidates
                if of == "prediction" or record.label[candidate.index] > 0
            ),
        )

    def cells(self, prediction: Prediction | None) -> dict[str, Any]:
        """Return score, probability and rank of a row's candidate, or of a list in the list's order."""
        names = ("score", "probability", "rank")
        if isinstance(prediction, CandidateScore):
            values: tuple[Any, ...] = (prediction.value, prediction.probability, prediction.rank)
        elif isinstance(prediction, Ranking):
            columns = zip(
                *((candidate.value, candidate.probability, candidate.rank) for candidate in prediction.candidates)
            )
            values = tuple(map(list, columns))
        else:
            values = ("", "", "")
        return {**dict(zip(names, values)), "truncated": "" if prediction is None else prediction.truncated}

    def reply(self, prediction: Prediction) -> dict[str, Any]:
        assert isinstance(prediction, Ranking)
        return {"ranking": [candidate.item() for candidate in prediction.ranked], "truncated": prediction.truncated}


def select_candidates(labels: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Return the indices, ascending, of the candidates to train on, from their relevance (n,).

    >>> select_candidates(np.array([0.0, 0, 0, 0, 1, 2, 1]), 4).tolist()
    [0, 1, 4, 5]
    >>> select_candidates(np.array([3.0, 1, 2, 3, 1]), 3).tolist()  # the others are those of the lowest relevance
    [0, 1, 4]
    """
    if len(labels) <= most:
        return np.arange(len(labels))
    # All of the lowest relevance, which need not be 0.
    others = np.flatnonzero(labels == labels.min())
    relevant = np.argsort(-labels, kind="stable")[: len(labels) - len(others)]  # the most relevant first
    # If there are few others, relevant ones fill their room.
    half = max(most // 2, most - len(others))
    relevant = relevant[:half]
    return np.sort(np.concatenate([relevant, others[: most - len(relevant)]]))


def _without(records: Sequence[Record]) -> list[Record]:
    """Return the labelled records without a relevant candidate."""
    return [record for record in records if record.label is not None and not max(record.label) > 0]


def _all_relevant(records: Sequence[Record]) -> int:
    """Return the number of labelled records with relevant candidates only."""
    return sum(record.label is not None and min(record.label) > 0 for record in records)
