"""Search in several files of vectors of the same texts, whose rankings are fused; and a reranker that comes last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.evaluation.fusion import DEPTH, fuse_scores, read_weights, sum_reciprocal_ranks
from osbert.inference.embedder import Embedder
from osbert.inference.engine import Engine, load
from osbert.inference.vectors.lexical import BM25Index
from osbert.inference.vectors.reading import VectorFile, VectorRow
from osbert.interop.folder import open_folder
from osbert.interop.opening import Opening
from osbert.runs.contract import Notice, Watch, ignore, report_remarks, warn_unknown
from osbert.runs.similarity.search import (
    QUERIES,
    FileSearch,
    FusedNeighbour,
    LoadModel,
    Neighbour,
    Neighbourhood,
    RerankedNeighbour,
    ScoredNeighbour,
    SearchRequest,
    Texts,
    describe_embedder,
    load_model,
    require_queries,
    search,
)
from osbert.runs.similarity.settings import SearchOptions
from osbert.terminal import format_count

BM25 = "bm25"
"""The name of the ranking by words."""
Rankings = Mapping[str, Mapping[int, float]]
"""By the name of each ranking, the scores of rows by their indices, the best first."""
WordFractions = Mapping[int, Mapping[str, float]]
"""By the index of a row, what makes up its score."""


def search_files(
    request: SearchRequest, queries: Sequence[Texts] | NDArray[np.floating], *, watch: Watch = ignore
) -> list[Neighbourhood]:
    """Return what `search` returns; with further files the texts that the rankings of all put first (FusedNeighbour).

    The first 100 texts of each ranking are fused, by their ranks or with `weights`; with hybrid, BM25 is one more.
    Raises UserError as `search`, and if the files hold other texts, or an option is for one file alone.
    """
    top = request.options.top
    if name := request.options.rerank:
        if isinstance(queries, np.ndarray) or any(len(query) != 1 for query in queries):
            raise UserError("A reranker reads queries that are single texts.", code="options-exclude-each-other")
        request.open_file()  # which checks the options
        engine = open_reranker(name, request.opening, device=request.options.device, watch=watch)
        deeper = replace(request, options=replace(request.options, rerank="", top=max(top, DEPTH)))
        return rerank(engine, search_files(deeper, queries, watch=watch), top, watch=watch)
    if not request.also and (isinstance(queries, np.ndarray) or not request.options.hybrid):
        return search(request, queries, watch=watch)
    if isinstance(queries, np.ndarray):
        raise UserError("Several files are searched for texts, not vectors.", code="options-exclude-each-other")
    require_queries(request.open_file(), queries)
    fused = (FusedSearch if request.also else HybridSearch).open(request, watch=watch)
    for file in fused.files.values():
        for remark in describe_embedder(file.embedder):
            watch(Notice(remark))
    results = fused.find(queries, top)
    warn_unknown(sum(result.unknown for result in results), watch)
    return results


@dataclass(frozen=True, kw_only=True)
class FusedSearch:
    """A search in files of vectors of the same texts, one or more, by name, and with hybrid in their words (BM25).

    `weights`: of the rankings, BM25's last; [] fuses their ranks.
    `word_index`: of all words, for a search that answers many requests; without it each builds one of its own words.
    """

    files: Mapping[str, FileSearch]
    weights: Sequence[float]
    hybrid: bool
    word_index: BM25Index | None = None

    @classmethod
    def open(cls, request: SearchRequest, *, watch: Watch = ignore, load_model: LoadModel = load_model) -> Self:
        """Open the files. Raises UserError if they hold other texts, and for options that are for one file alone."""
        request.open_file()  # which checks the options
        paths, options = [request.vectors, *request.also], request.options
        names = _name_files(paths)
        given = {"model": request.model, "above": options.above != SearchOptions().above}
        if request.also and (idle := [name for name, value in given.items() if value]):
            raise UserError(
                f"--{idle[0]} is for one file of vectors: remove it, or --also.", code="options-exclude-each-other"
            )
        all_names = [*names, *([BM25] if options.hybrid else [])]
        weights = read_weights(options.weights, all_names) if options.weights else []
        alone = replace(options, hybrid=False, weights="", rerank="")
        requests = [replace(request, vectors=path, options=alone, also=()) for path in paths]
        opened = [single.open_file() for single in requests]
        require_same_texts(opened)
        files = {
            name: single.open(file, watch, load_model)
            for name, single, file in zip(names, requests, opened, strict=True)
        }
        return cls(files=files, weights=weights, hybrid=options.hybrid)

    @property
    def systems(self) -> list[str]:
        """The names of the rankings, in the order of their weights."""
        return [*self.files, *([BM25] if self.hybrid else [])]

    @property
    def first(self) -> FileSearch:
        """The search in the first file, whose texts are shown."""
        return next(iter(self.files.values()))

    @property
    def text_file(self) -> VectorFile:
        """The first file."""
        return self.first.finder.opened

    @property
    def embedder(self) -> Embedder:
        """The model of the first file, for its queries."""
        return self.first.embedder

    def with_word_index(self) -> Self:
        """Return the search with an index of all words of the texts."""
        return replace(self, word_index=BM25Index(self._spelt_texts())) if self.hybrid else self

    def find(self, queries: Sequence[Texts], top: int) -> list[Neighbourhood]:
        """Return the `top` texts that the rankings put first, for each query."""
        index = self.word_index
        if self.hybrid and index is None:
            index = BM25Index.of_queries(self._spelt_texts(), [" ".join(query) for query in queries])
        windows = (queries[first : first + QUERIES] for first in range(0, len(queries), QUERIES))
        return [neighbourhood for window in windows for neighbourhood in self._find(window, top, index)]

    def _find(self, window: Sequence[Texts], top: int, index: BM25Index | None) -> Iterator[Neighbourhood]:
        count = max(top, DEPTH) if len(self.systems) > 1 else top
        embedded = {name: file.embed(window) for name, file in self.files.items()}
        by_file = {name: file.finder.rank(embedded[name][0], count) for name, file in self.files.items()}
        rankings = [{name: rows[number] for name, rows in by_file.items()} for number in range(len(window))]
        if index is not None:
            for query, scores in zip(window, rankings, strict=True):
                scores[BM25] = dict(index.rank(" ".join(query), count))
        lists = [[*scores.values()] for scores in rankings]
        # The fused scores of each query's texts by the indices of their rows, the best first.
        fused = [fuse_scores(each, self.weights) if self.weights else sum_reciprocal_ranks(each) for each in lists]
        best = [[*scores][:top] for scores in fused]
        # Words are looked for alone in texts that are shown, and by the files that ranked them.
        words = {
            name: file.finder.explain(
                embedded[name][0], [[row for row in rows if row in ranks] for rows, ranks in zip(best, by_file[name])]
            )
            for name, file in self.files.items()
        }
        for number, (query, rows) in enumerate(zip(window, best, strict=True)):
            fractions = {name: explained[number] for name, explained in words.items()}
            if index is not None:
                spelt, ranked = " ".join(query), rankings[number][BM25]
                fractions[BM25] = {row: index.explain(spelt, row) for row in rows if row in ranked}
            nearest = [
                self._describe(row, text, fused[number][row], rankings[number], fractions)
                for row, text in zip(rows, self.text_file.rows(rows), strict=True)
            ]
            (unread, unknown), length = max(
                (embedded[name][1][number], file.embedder.packer.length) for name, file in self.files.items()
            )
            yield Neighbourhood(query=query, nearest=nearest, unread=unread, length=length, unknown=unknown)

    def _describe(
        self, row: int, text: VectorRow, score: float, rankings: Rankings, words: Mapping[str, WordFractions]
    ) -> Neighbour | ScoredNeighbour | FusedNeighbour:
        """Return a row of the files as a result, with its ranks and scores by ranking and what makes up the scores."""
        rankings = {name: ranks for name, ranks in rankings.items() if row in ranks}
        return FusedNeighbour(
            score=score,
            line=text.line,
            texts=text.texts,
            ranks={name: [*ranks].index(row) + 1 for name, ranks in rankings.items()},
            scores={name: ranks[row] for name, ranks in rankings.items()},
            words={name: words[name][row] for name in rankings if row in words[name]},
        )

    def _spelt_texts(self) -> Iterator[str]:
        return (" ".join(row.texts) for row in self.text_file.all_rows())


class HybridSearch(FusedSearch):
    """A search in one file and in its words; its results are the file's, without a score if words alone find a text."""

    def _describe(
        self, row: int, text: VectorRow, score: float, rankings: Rankings, words: Mapping[str, WordFractions]
    ) -> Neighbour | ScoredNeighbour:
        (name, file), *_ = self.files.items()
        return file.finder.describe(text, rankings[name].get(row), words[name].get(row, {}))


def open_reranker(name: str, opening: Opening, *, device: str, option: str = "rerank", watch: Watch = ignore) -> Engine:
    """Return the reranker in a folder, or by its name. Raises UserError for another model; `option`: what named it."""
    engine = load(open_folder(name, opening, watch=watch), device=device)
    require_reranker(engine, name, option)
    report_remarks(engine, watch)
    return engine


def require_reranker(engine: Engine, name: str, option: str = "rerank") -> None:
    """Raise UserError unless the model ranks texts."""
    edge = engine.task.edge if engine.task else None
    if edge is None or not any(field.type == "ranking" for field in edge.answer):
        raise UserError(
            f"{name} is no reranker: fine-tune one (osbert finetune rerank), or remove --{option}.",
            code="unsupported-model",
        )


def rerank(
    engine: Engine, neighbourhoods: Sequence[Neighbourhood], top: int, *, watch: Watch = ignore
) -> list[Neighbourhood]:
    """Return the `top` texts of each query that a reranker scores highest. A Notice says how many it read in part."""
    unread_of_all, results = list[int](), []
    for neighbourhood in neighbourhoods:
        nearest = neighbourhood.nearest
        texts = [(*neighbourhood.query, *(near.texts[0] for near in nearest))] if nearest else []
        predictions = engine.predict(texts)
        scores = [float(score) for prediction in predictions for score in prediction.value]
        unread = [pieces for prediction in predictions for pieces in prediction.unread]
        unread_of_all += unread
        order = sorted(range(len(nearest)), key=lambda index: -scores[index])[:top]
        reranked = []
        for index in order:
            before = nearest[index]
            assert not isinstance(before, RerankedNeighbour)
            reranked.append(
                RerankedNeighbour(
                    score=scores[index],
                    line=before.line,
                    texts=before.texts,
                    rank=index + 1,
                    unread=unread[index],
                    before=before,
                )
            )
        results.append(replace(neighbourhood, nearest=reranked))
    report_unread(engine, unread_of_all, watch)
    return results


def report_unread(engine: Engine, unread: Sequence[int], watch: Watch) -> None:
    """Call `watch` with a Notice if a reranker read some documents in part; `unread` (n,): pieces left out of each."""
    if cut := sum(map(bool, unread)):
        texts = f"{cut:,} of {format_count(len(unread), 'text')}"
        longer = f"together they are longer than {engine.packer.length} tokens"
        pieces = format_count(sum(unread), "piece")
        watch(Notice(f"The reranker did not read {pieces} of {texts}, or of the query: {longer}."))


def require_same_texts(opened: Sequence[VectorFile]) -> None:
    """Raise UserError unless all files have the same texts in them."""
    for number, rows in enumerate(zip_longest(*(file.all_rows() for file in opened)), 1):
        if differing := [file for file, row in zip(opened, rows) if row != rows[0]]:
            raise UserError(
                f"{opened[0].path} and {differing[0].path} hold vectors of different texts (row {number:,}): "
                "embed the same file with each model.",
                code="mismatched-base",
            )


def _name_files(paths: Sequence[Path]) -> list[str]:
    """Return the names of files in messages and results. Raises UserError if one is given twice."""
    names = [path.name for path in paths]
    names = names if len({*names}) == len(names) else [*map(str, paths)]
    if len({*names}) < len(names):
        raise UserError("A file of vectors is given twice.", code="duplicate-name")
    return names
