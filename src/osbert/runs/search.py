"""The texts of a file of vectors that are nearest to queries, which are embedded as the texts of the file were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.inference.embedder import Embedder
from osbert.inference.engine import load
from osbert.inference.vectors.faiss_index import nearest_in_index, open_index
from osbert.inference.vectors.lexical import bm25, fused
from osbert.inference.vectors.nearest import NearestRows
from osbert.inference.vectors.reading import VectorFile, open_vectors
from osbert.inference.vectors.settings import VectorSettings
from osbert.interop.folder import Folder, open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.embed.rows import TextRows
from osbert.runs.embed.settings import TextFile
from osbert.runs.row_file import WriteRow, require_row_file, row_file
from osbert.runs.search_settings import SearchOptions
from osbert.runs.standard_input import named_as_given
from osbert.terminal import counted

QUERIES = 512
"""Queries that are compared with a block at a time."""
DEPTH = 100
"""The fewest texts of each ranking that hybrid search fuses."""
Texts = tuple[str, ...]
"""A text, or both of a pair."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A text of the file, or a pair: its cosine, its line, and what it says.

    The cosine is None if hybrid search ranked the text by its words alone.
    """

    cosine: float | None
    line: int
    texts: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Neighbourhood:
    """The texts nearest to a query, the nearest first.

    `query`: the text, or both of a pair; none of a vector. `unread`: how many of its pieces were not read; `length`:
    how many tokens at most are.
    """

    query: Sequence[str]
    nearest: Sequence[Neighbour]
    unread: int = 0
    length: int = 0

    def lines(self) -> Iterator[str]:
        """Yield what of the query was not read, and the texts with their cosines and lines."""
        if self.unread:
            were = "was" if self.unread == 1 else "were"
            pieces = counted(self.unread, "piece")
            yield f"{pieces} of the text {were} not read: it is longer than {self.length} tokens."
        for near in self.nearest:
            cosine = "      -" if near.cosine is None else f"{near.cosine:7.4f}"
            yield f"{cosine}  line {near.line:,}  {' | '.join(near.texts)}"


@dataclass(frozen=True, kw_only=True)
class SearchProgress:
    """An event: so many of the vectors were compared with the queries of the moment."""

    done: int
    count: int


@dataclass(frozen=True, kw_only=True)
class SearchTally:
    """A file of search results: its name, the number of queries, and the number of rows."""

    path: Path
    queries: int
    rows: int

    def lines(self) -> Iterator[str]:
        """Yield the counts, and where the rows are."""
        yield f"{counted(self.queries, 'text')}: {counted(self.rows, 'row')} -> {self.path}"


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """A search in a file that `osbert embed` wrote. `model`: where its model is, if it has moved."""

    vectors: Path
    options: SearchOptions = SearchOptions()  # noqa: RUF009 - it is frozen
    model: Path | None = None
    opening: Opening = CAREFUL

    def opened(self) -> VectorFile:
        """Return the file of vectors. Raises UserError for options that cannot be."""
        for name, value in (("top", self.options.top), ("backend", self.options.backend)):
            if (value < 1) if isinstance(value, int) else value not in ("exact", "faiss"):
                what = "at least 1" if name == "top" else "exact or faiss"
                raise UserError(f"--{name} must be {what}, not {value}.", code="invalid-value")
        if not -1 <= self.options.above <= 1:
            raise UserError(f"--above is a cosine, from -1 to 1, not {self.options.above:g}.", code="invalid-value")
        return open_vectors(self.vectors)

    def grouped(self, texts: Sequence[str]) -> list[Texts]:
        """Return words of a command line as queries: each text is one, or every two where the file is of pairs.

        Raises UserError when they are not as many.
        """
        columns = self.opened().settings["columns"]
        if len(texts) % len(columns):
            raise UserError(
                f"{self.vectors} holds vectors of pairs: give two texts for each query, not {len(texts)}.",
                code="wrong-number-of-texts",
            )
        return list(zip(*[iter(texts)] * len(columns), strict=True))

    def embedder(self, opened: VectorFile) -> Embedder:
        """Return what embeds queries as the file's texts were. Raises UserError when that model is not there."""
        source = _source(self.model or Path(opened.settings["model"]), self.vectors, self.opening)
        made = _settings(opened.settings, self.vectors)
        weights = source.fingerprint  # before `load`, which frees the memory of the weights
        embedder = Embedder(load(source, device=self.options.device), made)
        _check(embedder, weights, opened)
        return embedder


def search(
    request: SearchRequest, queries: Sequence[Texts] | NDArray[np.floating], *, watch: Watch = ignore
) -> list[Neighbourhood]:
    """Return the texts of a file of vectors that are nearest to each query, a text, a pair or a vector (Q, D).

    Raises UserError when the file is of pairs and a query is one text, or the other way round; when the model is not
    there or is another one; when vectors have another width or are not finite.
    """
    opened = request.opened()
    if isinstance(queries, np.ndarray):
        if request.options.hybrid:
            raise UserError("Vectors have no words: hybrid search needs the texts.", code="options-exclude-each-other")
        finder = _Finder(opened, request.options, watch)
        vectors = _numbers(queries)
        blocks = (vectors[first : first + QUERIES] for first in range(0, len(vectors), QUERIES))
        return [found for block in blocks for found in finder.find(block, [])]
    columns = opened.settings["columns"]
    if wrong := next((texts for texts in queries if len(texts) != len(columns)), None):
        kind = "pairs: give two texts" if len(columns) == 2 else "single texts: give one text"
        raise UserError(
            f"{request.vectors} holds vectors of {kind} after the file, not {len(wrong)}.",
            code="wrong-number-of-texts",
        )
    if blank := next((number for number, texts in enumerate(queries, 1) if not any(map(str.strip, texts))), 0):
        raise UserError(f"Query {blank} is empty: there is nothing to look for.", code="empty-text")
    return list(_searched(request, opened, iter(queries), watch))


def search_file(request: SearchRequest, file: TextFile, *, out: Path, watch: Watch = ignore) -> SearchTally:
    """Write the texts nearest to each text of a file into `out`, .csv, .tsv or .jsonl, a row for each result.

    Memory is that of some hundred queries. Raises UserError as `search`, and for a file that cannot be read.
    """
    require_row_file(out, [file.path, request.vectors])
    opened = request.opened()
    with TemporaryDirectory(prefix="osbert-") as folder, named_as_given(Path(folder)):
        rows = TextRows.open(file, Path(folder))
        for line in (rows.describe(), *rows.check()):
            watch(Notice(line))
        names, columns = rows.columns.texts, opened.settings["columns"]
        if len(names) != len(columns):
            raise UserError(
                f"{rows.name} has {len(names)} columns of texts ({', '.join(names)}), and {request.vectors} "
                f"{len(columns)} ({', '.join(columns)}): name them with --text and --pair.",
                code="wrong-number-of-texts",
            )
        kept = opened.text_names
        header = ["query_line", *(f"query_{name}" for name in kept), "rank", "cosine", "line", *kept]
        with row_file(out, header) as write:
            return _write(request, opened, rows, write, out=out, watch=watch)


def _write(
    request: SearchRequest, opened: VectorFile, rows: TextRows, write: WriteRow, *, out: Path, watch: Watch
) -> SearchTally:
    lines: list[int] = []

    def texts(row: Row) -> Texts:
        lines.append(row.line)
        return tuple(row.values[name] for name in rows.columns.texts)

    queries = written = 0
    for found in _searched(request, opened, map(texts, rows.rows()), watch):
        for rank, one in enumerate(found.nearest, 1):
            cosine = "" if one.cosine is None else round(one.cosine, 6)
            write([lines[queries], *found.query, rank, cosine, one.line, *one.texts])
        queries += 1
        written += len(found.nearest)
    return SearchTally(path=out, queries=queries, rows=written)


def _searched(
    request: SearchRequest, opened: VectorFile, queries: Iterator[Texts], watch: Watch
) -> Iterator[Neighbourhood]:
    """Yield what is nearest to each query, embedded some at a time."""
    embedder = request.embedder(opened)
    finder = _Finder(opened, request.options, watch)
    while window := list(islice(queries, QUERIES)):
        groups = [embedder.sequences(texts, place) for place, texts in enumerate(window)]
        found = finder.find(embedder.vectors(groups), window)
        for group, one in zip(groups, found, strict=True):
            unread = sum(example.truncated for example in group)
            yield Neighbourhood(query=one.query, nearest=one.nearest, unread=unread, length=embedder.packer.length)


def _numbers(queries: NDArray[Any]) -> NDArray[np.float32]:
    """Return queries (Q, D) as float32, in whose place float16 and small integers would overflow."""
    if queries.ndim != 2 or queries.dtype.kind not in "fiu":
        raise UserError(
            f"Queries are vectors of numbers (Q, D), not {queries.shape} of {queries.dtype}.", code="invalid-value"
        )
    return queries.astype(np.float32)


@dataclass(frozen=True)
class _Finder:
    """What finds the texts nearest to vectors, some queries at a time; an index is read once for all of them."""

    opened: VectorFile
    options: SearchOptions
    watch: Watch

    @cached_property
    def index(self) -> Any:
        """Return the approximate index of the file."""
        return open_index(self.opened)

    def find(self, vectors: NDArray[np.floating], texts: Sequence[Texts]) -> Iterator[Neighbourhood]:
        """Yield what is nearest to each of the vectors (Q, D); `texts`: of their queries."""
        opened, options = self.opened, self.options
        count = max(options.top, DEPTH) if options.hybrid else options.top
        places, cosines = self._nearest(vectors, count)
        rankings = [
            {place: cosine for place, cosine in zip(*both, strict=True) if place >= 0 and cosine >= options.above}
            for both in zip(places.tolist(), cosines.tolist(), strict=True)
        ]
        chosen = [list(ranking) for ranking in rankings]
        if options.hybrid:
            spelt = (" ".join(row.texts) for row in opened.all_rows())
            by_words = bm25(spelt, [" ".join(query) for query in texts], count)
            both = zip(chosen, by_words, strict=True)
            chosen = [fused([one, [place for place, _ in other]], options.top) for one, other in both]
        wanted = sorted({place for one in chosen for place in one})
        rows = dict(zip(wanted, opened.rows(wanted), strict=True))
        for number, (one, ranking) in enumerate(zip(chosen, rankings, strict=True)):
            found = [
                Neighbour(cosine=ranking.get(place), line=rows[place].line, texts=rows[place].texts) for place in one
            ]
            yield Neighbourhood(query=texts[number] if texts else (), nearest=found)

    def _nearest(self, vectors: NDArray[np.floating], count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        if self.options.backend == "faiss":
            return nearest_in_index(self.index, vectors, count)
        nearest = NearestRows(vectors, count)
        for block in self.opened.blocks():
            self.opened.require_single(block)
            nearest.compare(block)
            self.watch(SearchProgress(done=nearest.rows, count=self.opened.count))
        return nearest.places, nearest.cosines


def _settings(settings: Mapping[str, Any], vectors: Path) -> VectorSettings:
    try:
        return VectorSettings(**settings["vectors"])
    except TypeError as error:
        raise UserError(
            f"{vectors} was made with settings that this osbert does not know ({error}).", code="wrong-format"
        ) from error


def _source(folder: Path, vectors: Path, opening: Opening) -> Folder:
    if not folder.is_dir():
        raise UserError(
            f"{vectors} was made with the model in {folder}, which is not there. Say where: --model FOLDER.",
            code="missing-file",
        )
    return open_folder(folder, opening)


def _check(embedder: Embedder, weights: str, opened: VectorFile) -> None:
    """Raise UserError when a text has not one vector, or the model is not the one that made the file."""
    opened.require_single(np.empty((0, *embedder.shape), np.float32))
    tokenizer = embedder.packer.tokenizer.fingerprint
    if (weights, tokenizer) != (opened.settings["weights"], opened.settings["tokenizer"]):
        raise UserError(
            f"{opened.path} was made with another model than the one that is now in {embedder.engine.folder}.",
            code="mismatched-base",
        )
