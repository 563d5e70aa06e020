"""Mines hard negatives for contrastive training: documents that an encoder or BM25 ranks high for a query.

Where an unjudged document scores far above all that are judged relevant to the query, it is likelier that a judgement
is missing than that the ranking is wrong: such a document is no negative, and goes into a file for review. A document
that is judged not relevant is a negative at any score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from osbert.data.long_texts import Long  # noqa: F401  (the command line looks up inherited fields' types here)
from osbert.errors import Problems, UserError
from osbert.inference.vectors.lexical import BM25Index
from osbert.inference.vectors.nearest import NearestRows, pair_cosines
from osbert.inference.vectors.settings import Pooling, normalize_vectors  # noqa: F401
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.retrieval import TextCollection, select
from osbert.remote import reading_copies
from osbert.runs.contract import Watch, ignore
from osbert.runs.similarity.retrieval import QUERIES, CorpusOptions, CorpusSearch, RetrievalInput
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.inference.engine import Engine

Choice: TypeAlias = tuple[list[NDArray[np.int64]], NDArray[np.int64], int]
"""The negatives of each relevant document, the doubtful documents, and the number of close ones."""
EMPTY = hash("")
"""The number of a document without text, which is never in a row."""
TOGETHER = 4096
"""Queries that are written together: the texts of their documents are in memory, in one pass over the corpus."""


@dataclass(frozen=True, kw_only=True)
class MiningOptions(CorpusOptions):
    """Which documents become negatives. Scores are cosines, or without an encoder those of BM25."""

    negatives: int = 5
    """Most negatives of a query and a relevant document."""
    first_rank: int = 1
    """First rank of the documents that are considered, in the ranking of the encoder and in that of BM25."""
    last_rank: int = 100
    """Last rank of the documents that are considered."""
    margin: float = 0.05
    """A negative scores at least this fraction less than the relevant document. One that scores at least this fraction
    more than all relevant documents of its query may be relevant, too, and is written for review."""
    above: float = 0.0
    """A document is relevant if its judgement is above this number. One with another judgement is a negative at any
    score."""
    review: str = ""
    """The table of doubtful documents. Default: beside --out, with .review before the ending."""
    scores: str = ""
    """A reranker, by folder or name: its scores of the documents of each row are written, too, and contrastive training
    learns from them."""

    def check(self) -> None:
        """Raise UserError that lists invalid settings."""
        problems = Problems(heading="These negatives cannot be mined")
        if not 1 <= self.first_rank <= self.last_rank:
            ranks = f"--first-rank {self.first_rank} and --last-rank {self.last_rank}"
            problems.add(f"{ranks} must be ranks from 1 on, in this order.", code="invalid-value")
        if self.negatives < 1:
            problems.add(f"--negatives must be at least 1, not {self.negatives}.", code="invalid-value")
        if not 0 <= self.margin < 1:
            problems.add(f"--margin must be at least 0 and below 1, not {self.margin:g}.", code="invalid-value")
        self.note_invalid(problems)
        problems.stop_if_any()


@dataclass(frozen=True, kw_only=True)
class MiningTally:
    """The rows that were written, and their negatives; `fewer`: rows with fewer than the most, `none`: without any.

    `doubtful`: documents in the file for `review`; `close`: further ones that score too much to be negatives.
    """

    path: Path
    rows: int = 0
    negatives: int = 0
    fewer: int = 0
    none: int = 0
    review: Path
    doubtful: int = 0
    close: int = 0

    def lines(self) -> Iterator[str]:
        """Yield sentences with the counts."""
        yield f"{format_count(self.rows, 'row')} with {format_count(self.negatives, 'negative')} -> {self.path}"
        if self.fewer:
            rows = format_count(self.fewer, "row")
            yield f"fewer negatives than --negatives in {rows}, {self.none:,} of them without any"
        if self.close:
            yield f"left out because of --margin: {format_count(self.close, 'document')} that score like a relevant one"
        documents = format_count(self.doubtful, "document")
        yield (
            f"{documents} may be relevant without a judgement: above all relevant ones of the query -> {self.review}"
            + (". Look at them before training; none is among the negatives." if self.doubtful else "")
        )


@dataclass(frozen=True, kw_only=True)
class ScoredDocuments:
    """The documents of a query by index: `relevant` (A,) and `others` (C,), with their scores.

    `rejected`: which of the others (C,) are judged not relevant.
    """

    relevant: NDArray[np.int64]
    relevant_scores: NDArray[np.floating]
    others: NDArray[np.int64]
    other_scores: NDArray[np.floating]
    rejected: NDArray[np.bool_]

    def choose(self, margin: float, count: int) -> Choice:
        """Return the negatives of each relevant document, the best first; doubtful ones; and the number of close ones.

        >>> documents = ScoredDocuments(
        ...     relevant=np.array([7]), relevant_scores=np.array([0.8]),
        ...     others=np.array([3, 1, 2, 5, 4]), other_scores=np.array([0.9, 0.79, 0.2, 0.7, 0.78]),
        ...     rejected=np.array([False, False, False, False, True]),
        ... )
        >>> documents.choose(0.05, 5)
        ([array([4, 5, 2])], array([3]), 1)
        """
        order = np.lexsort((self.others, -self.other_scores))
        others, scores, rejected = self.others[order], self.other_scores[order], self.rejected[order]
        width = margin * np.abs(self.relevant_scores)  # (A,)
        doubtful = (scores >= (self.relevant_scores + width).max()) & ~rejected
        below = (scores <= (self.relevant_scores - width)[:, None]) & ~doubtful | rejected  # (A, C)
        close = int((~doubtful & ~below.any(axis=0)).sum())
        return [others[row][:count] for row in below], others[doubtful], close


class KnownPairs:
    """The cosines of chosen pairs of a query and a document, collected while the documents pass by in blocks."""

    def __init__(self, queries: NDArray[np.float32], documents: Sequence[NDArray[np.int64]]) -> None:
        """Prepare for queries (Q, D) of length 1 and the indices (P,) of documents for each."""
        self.queries = queries
        self.documents = documents
        rows = np.concatenate([*documents, np.empty(0, np.int64)])
        numbers = np.repeat(np.arange(len(documents)), [len(row) for row in documents])
        self.order = np.argsort(rows, kind="stable")
        self.rows, self.numbers = rows[self.order], numbers[self.order]
        self.cosines = np.empty(len(rows), np.float32)
        self.done = 0

    def compare(self, block: NDArray[np.float32]) -> None:
        """Compute the cosines of the pairs with the next documents (n, D)."""
        first, last = np.searchsorted(self.rows, [self.done, self.done + len(block)])
        part = slice(first, last)
        self.cosines[self.order[part]] = pair_cosines(
            self.queries, self.numbers[part], block, self.rows[part] - self.done
        )
        self.done += len(block)

    def by_query(self) -> list[NDArray[np.float32]]:
        """Return the cosines (P,) of the documents of each query."""
        return np.split(self.cosines, np.cumsum([len(row) for row in self.documents])[:-1])


@dataclass(frozen=True, kw_only=True)
class Miner:
    """Scores the documents of queries. The vectors of the corpus are in memory a block at a time.

    `relevant`: for each query the indices (A,) of its relevant documents. `document_numbers` (n,),
    `query_numbers` (Q,), and those of each query's documents with any judgement, `judged`: of `number_texts`.
    """

    search: CorpusSearch
    options: MiningOptions
    relevant: Sequence[NDArray[np.int64]]
    judged: Sequence[NDArray[np.int64]]
    document_numbers: NDArray[np.int64]
    query_numbers: NDArray[np.int64]

    def by_words(self) -> Iterator[ScoredDocuments]:
        """Yield the documents of each query, ranked and scored by BM25."""
        for query, (scores, relevant) in enumerate(zip(self._score_words(), self.relevant, strict=True)):
            others = self._drop_known(query, self._rank(scores))
            yield ScoredDocuments(
                relevant=relevant,
                relevant_scores=scores[relevant],
                others=others,
                other_scores=scores[others],
                rejected=np.isin(self.document_numbers[others], self.judged[query]),
            )

    def by_vectors(self, model: Path, opening: Opening) -> Iterator[ScoredDocuments]:
        """Yield the documents of each query, ranked by an encoder and, if the options say so, BM25, with cosines."""
        ranked = [row[:0] for row in self.relevant]
        if self.options.bm25:
            ranked = [self._rank(scores) for scores in self._score_words()]
        kind, queries, blocks = self.search.encode(model, self.options, opening)
        if kind.score != "cosine":
            raise UserError(
                f"{model} gives no dense vectors, and its scores are no cosines: mine with a model of dense ones, or "
                "with --pooling mean.",
                code="unsupported-model",
            )
        known = KnownPairs(normalize_vectors(queries), [np.concatenate(row) for row in zip(self.relevant, ranked)])
        starts = range(0, len(queries), QUERIES)
        nearest = [NearestRows(queries[first : first + QUERIES], self.options.last_rank) for first in starts]
        for block in blocks:
            known.compare(block)
            for part in nearest:
                part.compare(block)
        rankings = (row for part in nearest for row in zip(part.places, part.cosines, strict=True))
        skipped = self.options.first_rank - 1
        for query, (relevant, cosines, (nearest_rows, scores)) in enumerate(
            zip(self.relevant, known.by_query(), rankings)
        ):
            size = len(relevant)
            every = np.concatenate([nearest_rows[skipped:], ranked[query]])
            values = np.concatenate([scores[skipped:], cosines[size:]])
            by_index = dict(zip(every.tolist(), values.tolist()))
            others = self._drop_known(query, every)  # a document of both rankings once
            yield ScoredDocuments(
                relevant=relevant,
                relevant_scores=cosines[:size],
                others=others,
                other_scores=np.array([by_index[index] for index in others.tolist()]),
                rejected=np.isin(self.document_numbers[others], self.judged[query]),
            )

    @cached_property
    def _known(self) -> dict[int, set[int]]:
        """For the text of a query: itself, and the documents that are relevant to one of the queries with this text."""
        known: dict[int, set[int]] = {}
        for number, relevant in zip(self.query_numbers.tolist(), self.relevant, strict=True):
            known.setdefault(number, {EMPTY, number}).update(self.document_numbers[relevant].tolist())
        return known

    def _score_words(self) -> Iterator[NDArray[np.float64]]:
        queries = [*self.search.queries.texts()]
        return map(BM25Index.of_queries(self.search.texts(), queries).scores, queries)

    def _rank(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the documents at the ranks that are considered, of those that share a word with the query."""
        order = np.argsort(-scores, kind="stable")[self.options.first_rank - 1 : self.options.last_rank]
        return order[scores[order] > 0]

    def _drop_known(self, query: int, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the documents without those whose text is the query's, a relevant document's or another one's."""
        known = {*self._known[int(self.query_numbers[query])]}
        chosen = []
        for index in indices.tolist():
            if (number := int(self.document_numbers[index])) not in known:
                known.add(number)
                chosen.append(index)
        return np.array(chosen, np.int64)


def number_texts(collection: TextCollection) -> NDArray[np.int64]:
    """Return a number (n,) for each text; equal texts have one number."""
    return np.fromiter(map(hash, collection.texts()), np.int64, len(collection.ids))


def mine_negatives(
    data_input: RetrievalInput,
    *,
    out: Path,
    model: Path | None = None,
    options: MiningOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> MiningTally:
    """Write a row for each query and relevant document: query, positive, negative_1 and so on; "" for none.

    With a reranker positive_score, negative_1_score and so on follow. `model`: an encoder; without one BM25 ranks.
    Raises UserError for invalid options and data, before any computation.
    """
    from osbert.runs.rows.table import require_output, write_values  # loads torch
    from osbert.runs.similarity.fused_search import open_reranker, report_unread

    options = options or MiningOptions()
    options.check()
    review = Path(options.review) if options.review else out.with_name(f"{out.stem}.review{out.suffix}")
    data_input.check(model, words=True)
    for path, other in ((out, review), (review, out)):
        require_output(path, [*data_input.files, other])
    if not (model or options.bm25):
        raise UserError("There is nothing to rank with. Give --model, or remove --no-bm25.", code="missing-option")
    reranker = None
    if options.scores:
        reranker = open_reranker(options.scores, opening, device=options.device, option="scores", watch=watch)
    with reading_copies():
        data = data_input.read(options, watch, labelled=False)
        assert data.corpus is not None and data.queries is not None
        rows = {name: index for index, name in enumerate(data.corpus.ids)}
        relevant = {
            query: sorted(rows[name] for name, value in row.items() if value > options.above and name in rows)
            for query, row in data.judgements.items()
        }
        queries = select(data.queries, {query for query, indices in relevant.items() if indices})
        if not queries.ids:
            raise UserError(f"No document is judged above {options.above:g}: nothing is relevant.", code="no-data")
        search = CorpusSearch(corpus=data.corpus, queries=queries, depth=options.last_rank, watch=watch)
        numbers = number_texts(data.corpus)
        indices = (np.array(relevant[query], np.int64) for query in queries.ids)
        miner = Miner(
            search=search,
            options=options,
            relevant=[row[numbers[row] != EMPTY] for row in indices],
            judged=[numbers[[rows[name] for name in data.judgements[query] if name in rows]] for query in queries.ids],
            document_numbers=numbers,
            query_numbers=number_texts(queries),
        )
        writer = MinedRows(miner=miner, model=model, opening=opening, reranker=reranker)
        names = ["positive", *(f"negative_{number}" for number in range(1, options.negatives + 1))]
        scores = [f"{name}_score" for name in names] if reranker else []
        write_values(out, ["query", *names, *scores], writer.rows())
        columns = ["query", "document", "score", "positive", "positive_score"]
        write_values(review, columns, writer.doubtful)
    if reranker:
        report_unread(reranker, writer.unread, watch)
    return MiningTally(path=out, review=review, **writer.counts)


class MinedRows:
    """The rows to write, with the documents for review and the counts, which are complete after the last row."""

    def __init__(self, *, miner: Miner, model: Path | None, opening: Opening, reranker: Engine | None) -> None:
        """Take the rankings of an encoder, or of BM25 without one."""
        self.miner = miner
        self.reranker = reranker
        self.model = model
        self.opening = opening
        self.doubtful: list[list[object]] = []
        self.unread: list[int] = []
        self.counts = dict.fromkeys(("rows", "negatives", "fewer", "none", "doubtful", "close"), 0)

    def rows(self) -> Iterator[list[object]]:
        """Yield a row for each query and relevant document."""
        miner, options = self.miner, self.miner.options
        scored = miner.by_words() if self.model is None else miner.by_vectors(self.model, self.opening)
        queries = miner.search.queries.texts()
        while group := [pair for _, pair in zip(range(TOGETHER), zip(queries, scored))]:
            group = [(query, documents) for query, documents in group if len(documents.relevant)]
            choices = [documents.choose(options.margin, options.negatives) for _, documents in group]
            texts = self._texts(group, choices)
            for (query, documents), (negatives, doubtful, close) in zip(group, choices):
                self._note(query, documents, doubtful, texts)
                self.counts["close"] += close
                scores = self._score(query, chain(documents.relevant, *negatives), texts)
                for positive, chosen in zip(documents.relevant.tolist(), negatives):
                    self.counts["rows"] += 1
                    self.counts["negatives"] += len(chosen)
                    self.counts["fewer"] += len(chosen) < options.negatives
                    self.counts["none"] += not len(chosen)
                    row, rest = [positive, *chosen.tolist()], [""] * (options.negatives - len(chosen))
                    cells: list[object] = [query, *(texts[index] for index in row), *rest]
                    yield [*cells, *(scores[index] for index in row), *rest] if scores else cells

    def _score(self, query: str, indices: Iterable[int], texts: Mapping[int, str]) -> dict[int, float]:
        """Return the reranker's scores of documents for a query by index; none without a reranker."""
        if self.reranker is None:
            return {}
        order = sorted({*indices})
        [ranking] = self.reranker.predict([(query, *(texts[index] for index in order))])
        self.unread += ranking.unread
        return dict(zip(order, (round(score, 6) for score in ranking.value)))

    def _texts(self, group: Sequence[tuple[str, ScoredDocuments]], choices: Sequence[Choice]) -> dict[int, str]:
        """Return the texts of the documents of some queries by index."""
        chosen = [row for negatives, doubtful, _ in choices for row in (*negatives, doubtful)] or [
            np.empty(0, np.int64)
        ]
        indices = np.unique(np.concatenate([*chosen, *(documents.relevant for _, documents in group)])).tolist()
        corpus = self.miner.search.corpus
        return dict(zip(indices, select(corpus, {corpus.ids[index] for index in indices}).texts(), strict=True))

    def _note(self, query: str, documents: ScoredDocuments, doubtful: NDArray[np.int64], texts: dict[int, str]) -> None:
        """Collect the documents of a query for review, beside its best relevant one."""
        best = int(documents.relevant_scores.argmax())
        scores = dict(zip(documents.others.tolist(), documents.other_scores.tolist()))
        known = [texts[int(documents.relevant[best])], round(float(documents.relevant_scores[best]), 4)]
        for index in doubtful.tolist():
            self.counts["doubtful"] += 1
            self.doubtful.append([query, texts[index], round(scores[index], 4), *known])
