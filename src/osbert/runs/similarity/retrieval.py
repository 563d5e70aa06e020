"""Measures search on a user's data: an encoder, BM25 and the runs of other programs, by the same judgements.

The corpus is read a window at a time: its vectors are compared with those of all queries and dropped, so that memory
holds the ids of the corpus, the vectors of the queries and the best documents of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from osbert.data.long_texts import Long  # noqa: F401  (the command line looks up inherited fields' types here)
from osbert.errors import Problems, UserError
from osbert.evaluation.fusion import fit_weights, fuse_by_rank
from osbert.evaluation.retrieval import (
    MEASURES,
    Judgements,
    Measure,
    RankedDocuments,
    Rankings,
    SystemScores,
    SystemTest,
    score_systems,
)
from osbert.files import require_file, writing_output
from osbert.inference.vectors.lexical import BM25Index
from osbert.inference.vectors.settings import EmbeddingOptions, Pooling  # noqa: F401
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reading.memory import Data
from osbert.reading.retrieval import (
    Scores,
    TextCollection,
    add_documents,
    list_ids,
    read_collection,
    read_judgements,
    read_mapping,
    read_run,
    read_single_table,
    select,
)
from osbert.remote import local_data, reading_copies
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.json_lines import plain
from osbert.terminal import format_count, in_columns

if TYPE_CHECKING:
    from osbert.inference.kinds import KindOfVectors  # torch takes seconds to import

WINDOW = 256
"""Texts that are encoded and compared at a time."""
QUERIES = 512
"""Queries that are compared with a window at a time."""
BM25 = "bm25"
"""The name of the search by words among the systems."""
FUSED = ("rrf", "weighted")
"""The names of the fused systems."""


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(EmbeddingOptions):
    """How a corpus is read and searched, and how its vectors are made."""

    role: str | None = None
    """The role of the queries, whose prompt is put before them. Default: query. Documents have the role document."""
    bm25: bool = True
    """Also search by words (BM25)."""
    allow_unknown: bool = False
    """Accept judgements of unknown ids: such a document counts as not retrieved, such a query is left out. Default: an
    error."""
    encoding: str = ""
    """The encoding of the files. Default: UTF-8, or that of the byte-order mark."""
    tokens: int = 4096
    """Most tokens in one pass through the model."""
    device: str = "auto"
    """cpu, cuda or cuda:N. auto: a GPU if there is one."""

    def note_invalid(self, problems: Problems) -> None:
        """Report settings that a search cannot use."""
        if self.tokens < 1:
            problems.add(f"--tokens must be at least 1, not {self.tokens}.", code="invalid-value")
        if self.pooling == "tokens" or self.long == "error":
            problems.add(
                "A search needs one vector for each text: --pooling tokens and --long error are not possible.",
                code="invalid-value",
            )


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions(CorpusOptions):
    """How a search is measured, and how its vectors are made."""

    measures: str = ",".join(MEASURES)
    """Measures, separated by commas: ndcg, map, mrr, recall or precision, of the first documents of a ranking, such as
    ndcg@10. The systems are tested by the first."""
    depth: int = 1000
    """Most documents of a ranking."""
    fuse: bool = False
    """Also score the rankings fused: by ranks (rrf), and by weighted sums of scores (weighted), whose weights are
    fitted on the judged queries by the first measure. Each query is scored with weights that others have given."""

    def check(self) -> list[Measure]:
        """Return the measures. Raises UserError that lists invalid settings."""
        problems = Problems(heading="The search cannot be measured")
        measures = []
        for name in filter(str.strip, self.measures.split(",")):
            try:
                measures.append(Measure.of(name))
            except UserError as error:
                problems.add_error(error)
        if not self.measures.strip(", "):
            problems.add("--measures is empty. Name one, such as ndcg@10.", code="missing-value")
        if self.depth < 1:
            problems.add(f"--depth must be at least 1, not {self.depth}.", code="invalid-value")
        if too_deep := [measure.name for measure in measures if measure.cutoff > self.depth >= 1]:
            problems.add(
                f"{', '.join(too_deep)} reads more documents than --depth {self.depth} ranks. Raise --depth.",
                code="invalid-value",
            )
        self.note_invalid(problems)
        problems.stop_if_any()
        return measures


@dataclass(frozen=True)
class RetrievalProgress:
    """Event: `done` of `count` texts are encoded, or read for BM25; `what`: which texts."""

    done: int
    count: int
    what: str

    def __str__(self) -> str:
        """Return one line, so that `watch=print` is readable."""
        return f"{self.done:,} of {self.count:,} {self.what}"


@dataclass(frozen=True, kw_only=True)
class RetrievalInput:
    """What a search is measured on: files, or rows in memory.

    `corpus`, `queries` and `qrels`; or `data`, one table of query, document and label, whose documents are the corpus,
    or are added to `corpus`. `results`: rankings by the name
    of their system, as a TREC run or as {query: {document: score}}; for these alone `qrels` suffices.
    """

    corpus: Data = None
    queries: Data = None
    qrels: Data = None
    data: Data = None
    results: Mapping[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """The files that are read."""
        sources = (self.corpus, self.queries, self.qrels, self.data, *self.results.values())
        return [Path(value) for value in sources if isinstance(value, str | Path)]

    def check(self, model: Path | None, *, words: bool) -> None:
        """Raise UserError unless there is a system to score, and what it needs; `words`: whether BM25 is one."""
        texts = [name for name in ("corpus", "queries") if getattr(self, name) is not None]
        if self.data is not None and ("queries" in texts or self.qrels is not None):
            raise UserError(
                "--data is one table of queries, documents and labels. Remove it, or --queries and --qrels.",
                code="options-exclude-each-other",
            )
        searched = self.data is not None or len(texts) == 2
        if (self.data is None and self.qrels is None) or not (searched or self.results) or (model and not searched):
            raise UserError(
                "Give --corpus, --queries and --qrels, or one table of query, document and label as --data; for "
                "--results alone --qrels suffices.",
                code="missing-option",
            )
        systems = [*([name_model(model)] if model else []), *self.results, *([BM25] if searched and words else [])]
        if not systems:
            raise UserError("There is no system to score. Give --model or --results.", code="missing-option")
        if repeated := [name for index, name in enumerate(systems) if name in systems[:index]]:
            raise UserError(
                f"Two systems are called '{repeated[0]}'. Rename a file or folder, or give --no-bm25.",
                code="duplicate-name",
            )

    def read(self, options: CorpusOptions, watch: Watch, *, labelled: bool = True) -> SearchData:
        """Return the data, without queries that have no judgement. Raises UserError that lists what is wrong.

        Without `labelled` the rows of one table need no label: each is a query with a relevant document.
        """
        read = {"encoding": options.encoding}
        if self.data is not None:
            corpus, queries, judgements = read_single_table(local_data(self.data), labelled=labelled, **read)
            if self.corpus is not None:
                larger = read_collection(local_data(self.corpus), what="corpus", **read)
                corpus, judgements = add_documents(larger, corpus, judgements)
            return SearchData(corpus=corpus, queries=queries, judgements=judgements)
        judgements = read_judgements(local_data(self.qrels), **read)
        if self.corpus is None or self.queries is None:
            return SearchData(judgements=judgements)
        data = SearchData(
            corpus=read_collection(local_data(self.corpus), what="corpus", **read),
            queries=read_collection(local_data(self.queries), what="queries", **read),
            judgements=judgements,
        )
        return data.match(options, watch)

    def read_results(self, encoding: str) -> Iterator[tuple[str, Scores]]:
        """Yield the name and the scores of each finished ranking. Raises UserError that lists what is wrong in one."""
        for name, run in self.results.items():
            is_mapping = isinstance(run, Mapping)
            yield name, read_mapping(run, f"ranking '{name}'") if is_mapping else read_run(Path(run), encoding=encoding)


@dataclass(frozen=True, kw_only=True)
class SearchData:
    """A corpus, queries and their judgements; without texts where finished rankings are scored."""

    corpus: TextCollection | None = None
    queries: TextCollection | None = None
    judgements: Judgements

    def match(self, options: CorpusOptions, watch: Watch) -> SearchData:
        """Return the data of the queries that are judged. Raises UserError for judgements of unknown ids."""
        assert self.corpus is not None and self.queries is not None
        documents, queries = {*self.corpus.ids}, {*self.queries.ids}
        judged = {document for row in self.judgements.values() for document in row}
        unknown = {
            ("document", ""): sorted(judged - documents),
            ("query", "queries"): sorted(self.judgements.keys() - queries),
        }
        problems = Problems(heading="The judgements do not fit the corpus and the queries")
        for (noun, plural), ids in unknown.items():
            if ids and options.allow_unknown:
                treated = "counts as not retrieved" if noun == "document" else "is not scored"
                watch(Notice(f"judged, but unknown: {list_ids(ids, noun, plural)}; each {treated}", warning=True))
            elif ids:
                problems.add(
                    f"{list_ids(ids, noun, plural)} not in the {plural or 'corpus'}. Correct the ids, or give "
                    "--allow-unknown.",
                    code="unknown-id",
                )
        problems.stop_if_any()
        judgements = {query: row for query, row in self.judgements.items() if query in queries}
        if not judgements:
            raise UserError("No query has a judgement: there is nothing to score.", code="no-data")
        if unjudged := [query for query in self.queries.ids if query not in judgements]:
            watch(Notice(f"not scored, for they have no judgement: {list_ids(unjudged, 'query', 'queries')}"))
        chosen = select(self.queries, judgements.keys() & queries)
        return replace(self, queries=chosen, judgements={query: judgements[query] for query in chosen.ids})

    def remark(self, systems: Mapping[str, Rankings]) -> Iterator[str]:
        """Yield remarks on queries that score 0 whatever is ranked, and on rankings that are missing or not scored."""
        empty = [query for query, row in self.judgements.items() if not any(value > 0 for value in row.values())]
        if empty:
            yield f"without a relevant document, so that they score 0: {list_ids(empty, 'query', 'queries')}"
        for name, rankings in systems.items():
            if missing := [query for query in self.judgements if query not in rankings]:
                yield f"{name} ranks nothing for {list_ids(missing, 'query', 'queries')}; they score 0"
            if unjudged := [query for query in rankings if query not in self.judgements]:
                yield f"{name}: not scored, for they have no judgement: {list_ids(unjudged, 'query', 'queries')}"


@dataclass(frozen=True, kw_only=True)
class RetrievalEvaluation:
    """The scores of systems on the same queries, and the test of each pair by the `criterion`.

    >>> corpus, queries = {"1": "a good film", "2": "the bad play"}, {"q": "the good film"}
    >>> found = osbert.evaluate_retrieval(corpus=corpus, queries=queries, qrels={"q": {"1": 1}})
    >>> found.systems[0].name, found.measures["ndcg@10"], found.by_query["q"]["recall@10"]
    ('bm25', 1.0, 1.0)
    """

    reported: ClassVar[tuple[str, ...]] = ("criterion", "queries", "documents", "systems", "tests", "weights")

    criterion: str
    queries: int
    documents: int | None
    """The number of documents; None if finished rankings were scored without a corpus."""
    systems: Sequence[SystemScores]
    tests: Sequence[SystemTest]
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weights of the fused systems, fitted on all queries; none without `fuse`."""

    @property
    def measures(self) -> dict[str, float]:
        """The means of the first system by measure."""
        return self.systems[0].measures

    @property
    def by_query(self) -> dict[str, dict[str, float]]:
        """The scores of the first system by query and measure."""
        return self.systems[0].by_query

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON types."""
        content: dict[str, Any] = plain(self)
        return content

    def lines(self) -> Iterator[str]:
        """Yield the scores of each system, and the tests."""
        documents = f", {format_count(self.documents, 'document')}" if self.documents is not None else ""
        yield f"{format_count(self.queries, 'query', 'queries')}{documents}"
        others = [name for name in self.measures if name != self.criterion]
        rows = [
            [
                system.name,
                f"{system.measures[self.criterion]:.4f}",
                "{:.4f} to {:.4f}".format(*system.intervals[self.criterion]) if self.queries > 1 else "",
                *(f"{system.measures[name]:.4f}" for name in others),
            ]
            for system in self.systems
        ]
        yield from in_columns([["system", self.criterion, "95% interval", *others], *rows])
        if self.weights:
            spelt = ", ".join(f"{name} {weight:g}" for name, weight in self.weights.items())
            option = ",".join(f"{weight:g}" for weight in self.weights.values())
            hybrid = "--hybrid " if BM25 in self.weights else ""
            yield f"weights fitted on all queries: {spelt} (osbert search {hybrid}--weights {option})"
        for test in self.tests if self.queries > 1 else ():
            low, high = test.score.interval
            yield (
                f"{test.first} - {test.second}: {self.criterion} {test.score.difference:+.4f}, 95% interval {low:+.4f} "
                f"to {high:+.4f}, p = {test.p_value:.4f}"
            )
        if self.tests and self.queries > 1:
            holm = f", corrected for {len(self.tests)} pairs by Holm's method" if len(self.tests) > 1 else ""
            yield f"Intervals by bootstrap, p by Fisher's randomization test over the {self.queries:,} queries{holm}."


def evaluate_retrieval(
    data_input: RetrievalInput,
    *,
    model: Path | None = None,
    run: Path | None = None,
    out: Path | None = None,
    options: RetrievalOptions = RetrievalOptions(),
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> RetrievalEvaluation:
    """Score an encoder, BM25 and finished rankings by the same judgements, in this order but for BM25, which is last.

    `run`: a file for the rankings of the first system, a TREC run. `out`: a table of the scores by query and system.
    Raises UserError before any computation for invalid options, data that cannot be read, and judgements of unknown
    ids.
    """
    from osbert.runs.rows.table import require_output, write_values  # loads torch

    measures = options.check()
    data_input.check(model, words=options.bm25)
    for path, require in ((run, require_file), (out, require_output)):
        if path is not None:
            require(path, data_input.files)
    with ExitStack() as stack:
        stack.enter_context(reading_copies())
        run = None if run is None else stack.enter_context(claim(run))
        data = data_input.read(options, watch)
        if run is not None:
            _require_words([*data.judgements, *(data.corpus.ids if data.corpus else ())])
        finished: dict[str, Rankings] = {
            name: {query: RankedDocuments.of([*row], row.values()) for query, row in scores.items()}
            for name, scores in data_input.read_results(options.encoding)
        }
        systems: dict[str, Rankings] = {}
        if data.corpus and data.queries:
            search = CorpusSearch(corpus=data.corpus, queries=data.queries, depth=options.depth, watch=watch)
            if model is not None:
                systems[name_model(model)] = search.by_vectors(model, options, opening)
            systems |= finished
            if options.bm25:
                systems[BM25] = search.by_words()
        systems = systems or finished
        for remark in data.remark(systems):
            watch(Notice(remark))
        weights: Mapping[str, float] = {}
        if options.fuse:
            if clashing := [name for name in FUSED if name in systems]:
                raise UserError(
                    f"A system is called '{clashing[0]}', as a fusion is. Rename it.", code="duplicate-name"
                )
            fitted = fit_weights(systems, data.judgements, measures[0])
            weights = fitted.weights
            systems |= dict(zip(FUSED, (fuse_by_rank(systems, data.judgements), fitted.rankings)))
        scores, tests = score_systems(systems, data.judgements, measures)
        if run is not None:
            write_run(run, systems[scores[0].name], scores[0].name)
        if out is not None:
            columns = ["query", "system", *(measure.name for measure in measures)]
            rows = ([query, of.name, *of.by_query[query].values()] for query in scores[0].by_query for of in scores)
            write_values(out, columns, rows)
    return RetrievalEvaluation(
        criterion=measures[0].name,
        queries=len(data.judgements),
        documents=len(data.corpus.ids) if data.corpus else None,
        systems=scores,
        tests=tests,
        weights=weights,
    )


def name_model(folder: Path) -> str:
    """Return a short name of a model: of its folder, or of its repository or package if that folder has no name.

    >>> name_model(Path("runs/sentences")), name_model(Path("/hub/models--intfloat--e5-base/snapshots/f52b"))
    ('sentences', 'e5-base')
    """
    parts = [part for part in folder.absolute().parts if part]
    repository = next((part.rpartition("--")[2] for part in reversed(parts) if part.startswith("models--")), "")
    return repository or (parts[-2] if parts[-1] == "model" and len(parts) > 2 else parts[-1])


def write_run(path: Path, rankings: Rankings, tag: str) -> None:
    """Write rankings as a TREC run, which trec_eval scores as they are scored here: scores are written exactly."""
    with writing_output(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        for query, ranking in rankings.items():
            for rank, (document, score) in enumerate(zip(ranking.documents, ranking.scores, strict=True), 1):
                file.write(f"{query} Q0 {document} {rank} {score!s} {'_'.join(tag.split())}\n")


@dataclass(frozen=True, kw_only=True)
class CorpusSearch:
    """A corpus in which documents for queries are searched; `depth`: most documents of a ranking."""

    corpus: TextCollection
    queries: TextCollection
    depth: int
    watch: Watch

    def encode(self, model: Path, options: CorpusOptions, opening: Opening) -> tuple[KindOfVectors, Any, Iterator[Any]]:
        """Return the kind of the model's vectors, those of the queries, and an iterator over blocks of the documents'.

        Dense ones are arrays (n, D), sparse ones (n, V) scipy's csr_array.
        """
        from osbert.inference.embedder import remarks  # torch takes seconds to import
        from osbert.inference.engine import load
        from osbert.inference.kinds import KINDS
        from osbert.interop.sentence_files import DOCUMENT, QUERY

        engine = load(model, device=options.device, opening=opening)
        report_remarks(engine, self.watch)
        names = [setting.name for setting in fields(EmbeddingOptions)]
        vectors = EmbeddingOptions(**{name: getattr(options, name) for name in names})
        roles = replace(vectors, role=options.role or QUERY), replace(vectors, role=DOCUMENT)
        of_queries, of_documents = (engine.embedder(chosen, tokens=options.tokens) for chosen in roles)
        if len(of_documents.shape) != 1:
            raise UserError(
                f"A search needs one vector for each text: --layers {options.layers} gives several.",
                code="invalid-value",
            )
        for line in dict.fromkeys(line for chosen in roles for line in remarks(chosen, engine)):
            self.watch(Notice(line))
        kind = KINDS[of_queries.settings.kind]
        queries = kind.stack([*self._encode(self.queries, of_queries, "queries")])
        return kind, queries, self._encode(self.corpus, of_documents, "documents")

    def by_vectors(self, model: Path, options: CorpusOptions, opening: Opening) -> Rankings:
        """Return the documents with the largest scores for each query, such as cosines of dense vectors."""
        kind, queries, blocks = self.encode(model, options, opening)
        starts = range(0, queries.shape[0], QUERIES)
        nearest = [kind.nearest(queries[first : first + QUERIES], self.depth) for first in starts]
        documents, indices = self._order()
        for block in blocks:
            for part in nearest:
                part.compare(block, indices[part.rows : part.rows + block.shape[0]])
        rows = (row for part in nearest for row in part.ranked)
        return {
            query: RankedDocuments([documents[index] for index in ranked.tolist()], scores)
            for query, (ranked, scores) in zip(self.queries.ids, rows, strict=True)
        }

    def by_words(self) -> Rankings:
        """Return the documents with the highest BM25 scores for each query."""
        documents, indices = self._order()
        queries = [*self.queries.texts()]
        index = BM25Index.of_queries(self.texts(), queries)
        scored = (index.rank(query, self.depth, indices) for query in queries)
        return {
            query: RankedDocuments.of([documents[index] for index, _ in row], [score for _, score in row])
            for query, row in zip(self.queries.ids, scored, strict=True)
        }

    def texts(self) -> Iterator[str]:
        """Yield the texts of the corpus, and report progress."""
        count = len(self.corpus.ids)
        for done, text in enumerate(self.corpus.texts(), 1):
            yield text
            if done % WINDOW == 0 or done == count:
                self.watch(RetrievalProgress(done, count, "documents by words"))

    def _order(self) -> tuple[list[str], NDArray[np.int64]]:
        """Return the ids of the corpus in falling order, in which ties are broken, and the rank of each row (n,)."""
        ids = self.corpus.ids
        order = sorted(range(len(ids)), key=ids.__getitem__, reverse=True)
        ranks = np.empty(len(ids), np.int64)
        ranks[order] = np.arange(len(ids))
        return [ids[index] for index in order], ranks

    def _encode(self, collection: TextCollection, embedder: Any, what: str) -> Iterator[Any]:
        """Yield the vectors (n, D or V) of windows of texts, and report how many texts were truncated."""
        truncated = done = 0
        texts, count = collection.texts(), len(collection.ids)
        while window := [*islice(texts, WINDOW)]:
            groups = [embedder.sequences((text,), index) for index, text in enumerate(window)]
            truncated += sum(any(example.truncated for example in group) for group in groups)
            yield embedder.vectors(groups)
            done += len(window)
            self.watch(RetrievalProgress(done, count, what))
        if truncated:
            longer = f"{truncated:,} of {count:,} {what} are longer than {embedder.packer.length} tokens"
            self.watch(Notice(f"{longer} and were not read to their end. --long window reads all."))


def _require_words(ids: Iterable[str]) -> None:
    """Raise UserError if an id contains white space, which separates the fields of a TREC run."""
    if wrong := [name for name in ids if name.split() != [name]]:
        raise UserError(
            f"A TREC run separates its fields by spaces, so ids must not contain any: {list_ids(wrong, 'id')}. Rename "
            "them, or remove --run.",
            code="invalid-value",
        )
