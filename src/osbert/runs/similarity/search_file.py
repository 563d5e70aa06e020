"""Searches the texts nearest to every row of a file of queries, in windows of rows; each result is a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from osbert.errors import Problems, UserError
from osbert.inference.kinds import KINDS
from osbert.inference.model import LoadedModel
from osbert.reading.data_file import sampled_sha256
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch, ignore, warn_unknown
from osbert.runs.file_options import TextFile
from osbert.runs.rows.contract import READ, ROWS
from osbert.runs.rows.forms.contract import RowLayout, RowResult, ValueResult
from osbert.runs.rows.output import RowOutput, form_name
from osbert.runs.rows.table import Results, ResultSource, write_table
from osbert.runs.rows.texts import TextJob, TextRows
from osbert.runs.similarity.fused_search import HybridSearch
from osbert.runs.similarity.search import (
    QUERIES,
    FileSearch,
    FusedNeighbour,
    RerankedNeighbour,
    ScoredNeighbour,
    SearchRequest,
    describe_embedder,
)
from osbert.terminal import format_count


@dataclass(frozen=True, kw_only=True)
class SearchTally:
    """A file of search results: its path, and the numbers of queries and rows.

    `empty`: queries without text, which have no rows; `cut`: queries longer than `length` tokens.
    """

    path: Path
    queries: int
    rows: int
    empty: int
    cut: int
    length: int

    def lines(self) -> Iterator[str]:
        """Yield sentences with the counts and the path."""
        yield f"{format_count(self.queries, 'text')}: {format_count(self.rows, 'row')} -> {self.path}"
        if self.empty:
            yield f"no rows for {format_count(self.empty, 'empty query', 'empty queries')}"
        if self.cut:
            yield f"{format_count(self.cut, 'query', 'queries')} cut to {self.length} tokens"


@dataclass(frozen=True, kw_only=True)
class SearchSource(ResultSource["SearchJob"]):
    """A call that searches the texts nearest to each row of a file of queries."""

    work_name = "a search that was begun"

    request: SearchRequest

    @property
    def inputs(self) -> tuple[Path, ...]:
        return self.request.vectors, self.model, self.file

    def with_paths(self, file: Path, out: Path | None) -> Self:
        self.output.refuse_inputs((self.request.vectors,))
        return super().with_paths(file, out)

    def with_absolute_paths(self) -> Self:
        source = super().with_absolute_paths()
        request = replace(self.request, vectors=self.request.vectors.absolute(), model=source.model)
        return replace(source, request=request)

    def open(self) -> SearchJob:
        opened = self.request.open_file()
        rows = TextRows.open(self.file, self.reading, name=self.name)
        names, columns = rows.columns.texts, opened.settings["columns"]
        if len(names) != len(columns):
            raise UserError(
                f"{rows.name} has {len(names)} columns of texts ({', '.join(names)}), and {self.request.vectors} "
                f"{len(columns)} ({', '.join(columns)}). Name them with --text and --pair.",
                code="wrong-number-of-texts",
            )
        texts = opened.text_names
        score = KINDS[opened.kind].score
        words = [] if score == "cosine" else ["words"]
        headings = ["query_line", *(f"query_{name}" for name in texts), "rank", score, "line", *texts, *words]
        form = self.output.choose_form(RowLayout(file=self.file, columns=(), headings=headings))
        hybrid = self.request.options.hybrid
        search = HybridSearch.open(self.request) if hybrid else self.request.open(opened)
        facts = {
            "input": rows.before.sha256,
            "columns": list(names),
            "vectors": sampled_sha256(self.request.vectors),
            "settings": dict(opened.settings),
            "form": form_name(type(form)),
            "search": asdict(self.request.options),
        }
        return SearchJob(
            engine=search.embedder.engine,
            search=search,
            top=self.request.options.top,
            rows=rows,
            form=form,
            before=rows.before,
            facts=facts,
        )


@dataclass(frozen=True, kw_only=True)
class SearchJob(TextJob):
    """The queries of a file, what embeds and compares them, and the form of the output."""

    work = "search"
    verb = "search"
    unit = "text"

    engine: LoadedModel
    search: FileSearch | HybridSearch
    top: int

    @property
    def window_size(self) -> tuple[int, int]:
        return QUERIES, 1

    def describe(self) -> Iterator[str]:
        return iter([self.description, *describe_embedder(self.search.embedder)])

    def check_row(self, row: Row, problems: Problems) -> Row:
        return row

    def check(self, watch: Watch) -> int:
        for line in self.rows.check():
            watch(Notice(line))
        return self.rows.count

    def results(self, window: Sequence[Row], tally: Mapping[str, int]) -> Results:
        texts = [tuple(row.values[name] for name in self.rows.columns.texts) for row in window]
        queries = {row: query for row, query in enumerate(texts) if any(map(str.strip, query))}
        rows: list[tuple[Row, RowResult]] = []
        neighbourhoods = self.search.find([*queries.values()], self.top)
        for query, neighbourhood in zip((window[row] for row in queries), neighbourhoods, strict=True):
            for rank, neighbour in enumerate(neighbourhood.nearest, 1):
                assert not isinstance(neighbour, FusedNeighbour | RerankedNeighbour)
                score = "" if neighbour.score is None else round(neighbour.score, 6)
                values = [query.line, *neighbourhood.query, rank, score, neighbour.line, *neighbour.texts]
                if isinstance(neighbour, ScoredNeighbour):
                    values.append(neighbour.describe_words())
                result = ValueResult(values=dict(zip(self.form.layout.headings, values, strict=True)))
                rows.append((Row(line=query.line, values={}), result))
        cut = sum(neighbourhood.unread > 0 for neighbourhood in neighbourhoods)
        unknown = sum(neighbourhood.unknown for neighbourhood in neighbourhoods)
        return rows, {"empty": len(window) - len(queries), "cut": cut, "unknown": unknown}


def search_file(request: SearchRequest, file: TextFile, *, out: Path, watch: Watch = ignore) -> SearchTally:
    """Write the texts nearest to each text of a file into `out`, in the form of its ending, a row for each result.

    Memory holds a few hundred queries. A stopped call keeps its rows in OUT.unfinished, and the same call resumes it.
    Raises UserError as `search`, and for a file that cannot be read.
    """
    if request.also or request.options.rerank:
        option = "also" if request.also else "rerank"
        raise UserError(
            f"--{option} is for queries in quotes, not for a file of them: remove it, or --file.",
            code="options-exclude-each-other",
        )
    source = SearchSource(
        model=request.model or Path(request.open_file().settings["model"]),
        file=file.path,
        reading=file.options,
        opening=request.opening,
        form=file.input_form,
        output=RowOutput(path=out),
        request=request,
    )
    job, tally = write_table(source, watch)
    warn_unknown(tally.get("unknown", 0), watch)
    queries, rows, empty, cut = (tally.get(name, 0) for name in (READ, ROWS, "empty", "cut"))
    length = job.search.embedder.packer.length
    return SearchTally(path=out, queries=queries, rows=rows, empty=empty, cut=cut, length=length)
