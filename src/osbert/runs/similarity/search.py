"""Nearest-neighbour search in a file of vectors. Queries are embedded in the same way as the file's texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import are_mostly_unknown
from osbert.errors import UserError
from osbert.inference.embedder import Embedder
from osbert.inference.engine import Engine, load, make_embedder
from osbert.inference.kinds import KINDS, Index, KindOfVectors, Ranking
from osbert.inference.vectors.reading import VectorFile, VectorRow, open_vectors
from osbert.inference.vectors.settings import VectorSettings
from osbert.interop.folder import Folder, open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.sentence_files import DOCUMENT, DOCUMENTS, QUERY, Prompts
from osbert.remote import display_path
from osbert.runs.contract import Notice, Watch, WorkProgress, describe_remarks, ignore, warn_unknown
from osbert.runs.similarity.settings import Backend, SearchOptions
from osbert.terminal import format_count
from osbert.text.file_tokenizer import unknown_id
from osbert.text.normalize import is_blank

QUERIES = 512
"""Queries that are compared with a block at once."""
WORDS = 5
"""Most words that are printed for a text."""
Texts = tuple[str, ...]
"""A text, or both texts of a pair."""
LoadModel = Callable[[Folder, str], Engine]
"""Loads the model of a folder on a device, after its fingerprint: loading frees the memory of the weights."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A text or a pair of the file, with its cosine and line number.

    The cosine is None if hybrid search found the text by its words only.
    """

    cosine: float | None
    line: int
    texts: Sequence[str]

    @property
    def score(self) -> float | None:
        """The cosine."""
        return self.cosine

    def describe(self) -> str:
        """Return a line with all of it."""
        return _describe(self.cosine, self.line, self.texts)


@dataclass(frozen=True, kw_only=True)
class ScoredNeighbour:
    """A text or a pair of a file of sparse vectors, with its dot product with the query and its line number.

    The score is None if hybrid search found the text by its words only. `words`: the pieces that the vectors of text
    and query have in common, with the fraction of the score that each adds, the largest first.
    """

    score: float | None
    line: int
    texts: Sequence[str]
    words: Mapping[str, float]

    def describe(self) -> str:
        """Return a line with all of it, but for some of the words."""
        return _describe(self.score, self.line, self.texts) + (f"  ({self.describe_words()})" if self.words else "")

    def describe_words(self) -> str:
        """Return the first of the words with their fractions.

        >>> ScoredNeighbour(score=2.0, line=1, texts=["a film"], words={"film": 0.75, "a": 0.25}).describe_words()
        'film 75%, a 25%'
        """
        more = f", {len(self.words) - WORDS} more" if len(self.words) > WORDS else ""
        return ", ".join(f"{word} {fraction:.0%}" for word, fraction in islice(self.words.items(), WORDS)) + more


@dataclass(frozen=True, kw_only=True)
class FusedNeighbour:
    """A text or a pair that several files have, with its line number, and rank and score by each file that found it.

    `score`: the sum of reciprocal ranks, or of weighted scores. `words`: what makes up the scores of sparse and many
    vectors and of BM25, as fractions, by file.
    """

    score: float
    line: int
    texts: Sequence[str]
    ranks: Mapping[str, int]
    scores: Mapping[str, float]
    words: Mapping[str, Mapping[str, float]]

    def describe(self) -> str:
        """Return a line with all of it."""
        ranks = ", ".join(f"{name} {rank}: {self.scores[name]:.4f}" for name, rank in self.ranks.items())
        return f"line {self.line:,}  {' | '.join(self.texts)}  ({ranks})"


@dataclass(frozen=True, kw_only=True)
class RerankedNeighbour:
    """A text with its line number, the score that a reranker gave it, and its rank and entry in the search before.

    `unread`: the pieces of the text that the reranker did not read; those of the query count in one of its texts.
    """

    score: float
    line: int
    texts: Sequence[str]
    rank: int
    unread: int = 0
    before: Neighbour | ScoredNeighbour | FusedNeighbour

    def describe(self) -> str:
        """Return a line with all of it."""
        return f"{_describe(self.score, self.line, self.texts)}  (before: {self.rank})"


@dataclass(frozen=True, kw_only=True)
class Neighbourhood:
    """The texts nearest to a query, the nearest first.

    `query`: the text, or both texts of a pair; () for a vector. `unread`: the number of its truncated pieces;
    `length`: the most tokens of a sequence. `unknown`: whether most of its pieces are unknown.
    """

    reported: ClassVar[tuple[str, ...]] = ("query", "nearest", "unread", "length")

    query: Sequence[str]
    nearest: Sequence[Neighbour | ScoredNeighbour | FusedNeighbour | RerankedNeighbour]
    unread: int = 0
    length: int = 0
    unknown: bool = False

    def lines(self) -> Iterator[str]:
        """Yield a remark if the query was truncated, and the texts with their cosines and lines."""
        if self.unread:
            were = "was" if self.unread == 1 else "were"
            pieces = format_count(self.unread, "piece")
            yield f"{pieces} of the text {were} not read: it is longer than {self.length} tokens."
        yield from (near.describe() for near in self.nearest)


def list_lines(neighbourhoods: Sequence[Neighbourhood]) -> Iterator[str]:
    """Yield the lines of each query; of several, each after its query."""
    for neighbourhood in neighbourhoods:
        if len(neighbourhoods) > 1:
            yield " | ".join(neighbourhood.query)
        yield from neighbourhood.lines()


def _describe(score: float | None, line: int, texts: Sequence[str]) -> str:
    spelt = "      -" if score is None else f"{score:7.4f}"
    return f"{spelt}  line {line:,}  {' | '.join(texts)}"


def load_model(source: Folder, device: str) -> Engine:
    """Load the model of a file of vectors, as `LoadModel`."""
    _ = source.fingerprint
    return load(source, device=device)


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """A search in a file that `osbert embed` wrote. `model`: where its model is, if it has moved.

    `also`: further files of the same texts, for `search_files` (fused_search.py).
    """

    vectors: Path
    options: SearchOptions = SearchOptions()  # noqa: RUF009 - it is frozen
    model: Path | None = None
    also: tuple[Path, ...] = ()
    opening: Opening = CAREFUL

    def open_file(self) -> VectorFile:
        """Return the file of vectors. Raises UserError for invalid options."""
        top, backend, above = self.options.top, self.options.backend, self.options.above
        if top < 1:
            raise UserError(f"--top must be at least 1, not {top}.", code="invalid-value")
        if backend not in (known := get_args(Backend)):
            raise UserError(f"--backend must be one of {', '.join(known)}, not {backend}.", code="invalid-value")
        if self.options.weights and not (self.also or self.options.hybrid):
            raise UserError("--weights is for several rankings: give --hybrid or --also.", code="missing-option")
        opened = open_vectors(self.vectors)
        kind = KINDS[opened.kind]
        if backend not in kind.backends:
            raise UserError(
                f"{self.vectors} holds {opened.kind} vectors, which --backend {backend} does not search. Give "
                f"--backend {' or '.join(kind.backends)}.",
                code="options-exclude-each-other",
            )
        if kind.score == "cosine" and not -1 <= above <= 1:
            raise UserError(f"--above is a cosine, from -1 to 1, not {above:g}.", code="invalid-value")
        return opened

    def group_texts(self, texts: Sequence[str]) -> list[Texts]:
        """Return arguments of the command line as queries: one text each, or two if the file has pairs.

        Raises UserError for an odd number of texts of pairs.
        """
        columns = self.open_file().settings["columns"]
        if len(texts) % len(columns):
            raise UserError(
                f"{self.vectors} holds vectors of pairs: give two texts for each query, not {len(texts)}.",
                code="wrong-number-of-texts",
            )
        # The same iterator repeated: zip takes consecutive texts, two per query for pairs.
        return list(zip(*[iter(texts)] * len(columns), strict=True))

    def open(self, opened: VectorFile, watch: Watch = ignore, load_model: LoadModel = load_model) -> FileSearch:
        """Return the search in the file with its model. Raises UserError if the model is not the file's."""
        folder = self.model or Path(opened.settings["model"])
        if not folder.is_dir():
            raise UserError(
                f"{self.vectors} was made with the model in {display_path(folder)}, which is not there, or not on this "
                "machine. Say where: --model, with a folder or an address.",
                code="missing-file",
            )
        engine = load_model(open_folder(folder, self.opening), self.options.device)
        kind = KINDS[opened.kind]
        kind.require_comparable(opened, (0,))
        stored = opened.settings["weights"], opened.settings["tokenizer"]
        if (engine.source.fingerprint, engine.tokenizer.fingerprint) != stored:
            raise UserError(
                f"{opened.path} was made with another model than the one that is now in {engine.folder}.",
                code="mismatched-base",
            )
        embedder = make_embedder(engine, _query_settings(engine, opened, self.options.role))
        kind.require_comparable(opened, embedder.shape)
        return FileSearch(embedder, Finder(opened, self.options, watch, embedder.packer.tokenizer.vocabulary))


def require_queries(opened: VectorFile, queries: Sequence[Texts]) -> None:
    """Raise UserError if a query is empty, or is not of as many texts as the file's vectors."""
    columns = opened.settings["columns"]
    if wrong := next((texts for texts in queries if len(texts) != len(columns)), None):
        kind = "pairs: give two texts" if len(columns) == 2 else "single texts: give one text"
        raise UserError(
            f"{opened.path} holds vectors of {kind} for each query, not {len(wrong)}.", code="wrong-number-of-texts"
        )
    if blank := next((number for number, texts in enumerate(queries, 1) if all(map(is_blank, texts))), 0):
        raise UserError(f"Query {blank} is empty: there is nothing to look for.", code="empty-text")


def search(
    request: SearchRequest, queries: Sequence[Texts] | NDArray[np.floating], *, watch: Watch = ignore
) -> list[Neighbourhood]:
    """Return the texts of a file of vectors that are nearest to each query: texts, pairs, or vectors (Q, D).

    Raises UserError if a query is a text and the file has pairs, or the other way round; if the model is missing or is
    another one; if vectors have another width or are not finite.
    """
    opened = request.open_file()
    if isinstance(queries, np.ndarray):
        if KINDS[opened.kind].score != "cosine":
            raise UserError(
                f"{request.vectors} holds {opened.kind} vectors: give queries as texts.",
                code="options-exclude-each-other",
            )
        if request.options.hybrid:
            raise UserError("Vectors have no words: hybrid search needs the texts.", code="options-exclude-each-other")
        if request.options.role is not None:
            raise UserError("A role is for queries that are texts, not vectors.", code="options-exclude-each-other")
        finder = Finder(opened, request.options, watch)
        vectors = _numbers(queries)
        blocks = (vectors[first : first + QUERIES] for first in range(0, len(vectors), QUERIES))
        return [neighbourhood for block in blocks for neighbourhood in finder.find(block, [], request.options.top)]
    require_queries(opened, queries)
    opened_search = request.open(opened, watch)
    for remark in describe_embedder(opened_search.embedder):
        watch(Notice(remark))
    results = opened_search.find(queries, request.options.top)
    warn_unknown(sum(result.unknown for result in results), watch)
    return results


@dataclass(frozen=True)
class FileSearch:
    """A search in a file of vectors for texts, with the model that embeds them."""

    embedder: Embedder
    finder: Finder

    def find(self, queries: Sequence[Texts], top: int) -> list[Neighbourhood]:
        """Return the `top` texts nearest to each query; some hundred queries are embedded and compared together."""
        windows = (queries[first : first + QUERIES] for first in range(0, len(queries), QUERIES))
        return [neighbourhood for window in windows for neighbourhood in self._find(window, top)]

    def embed(self, window: Sequence[Texts]) -> tuple[Any, list[tuple[int, bool]]]:
        """Return the vectors of some hundred queries, of the file's kind, and the unread and unknown of each."""
        groups = [self.embedder.sequences(texts, index) for index, texts in enumerate(window)]
        unknown = are_mostly_unknown(groups, unknown_id(self.embedder.packer.tokenizer))
        unread = [sum(example.truncated for example in group) for group in groups]
        return self.embedder.vectors(groups), list(zip(unread, unknown))

    def _find(self, window: Sequence[Texts], top: int) -> Iterator[Neighbourhood]:
        vectors, readings = self.embed(window)
        for (unread, unknown), near in zip(readings, self.finder.find(vectors, window, top), strict=True):
            yield replace(near, unread=unread, unknown=unknown, length=self.embedder.packer.length)


def _numbers(queries: NDArray[Any]) -> NDArray[np.float32]:
    """Return queries (Q, D) as float32: float16 and small integers would overflow. Raises UserError for other types."""
    if queries.ndim != 2 or queries.dtype.kind not in "fiu":
        raise UserError(
            f"Queries are vectors of numbers (Q, D), not {queries.shape} of {queries.dtype}.", code="invalid-value"
        )
    return queries.astype(np.float32)


def describe_embedder(embedder: Embedder) -> list[str]:
    """Return the prompt of the queries, if there is one, and remarks on the model."""
    prompt = embedder.settings.prompt
    prompts = [f"Queries are embedded with the prompt {prompt[:60]!r}."] if prompt else []
    return [*prompts, *describe_remarks(embedder.engine)]


@dataclass(frozen=True)
class Finder:
    """Finds the texts nearest to vectors, some queries at a time. An index is read only once.

    `vocabulary`: the names of pieces, for sparse vectors.
    """

    opened: VectorFile
    options: SearchOptions
    watch: Watch
    vocabulary: Sequence[str] = ()

    @property
    def kind(self) -> KindOfVectors:
        """What the file's kind of vectors needs."""
        return KINDS[self.opened.kind]

    @property
    def backend(self) -> str:
        """The search: what auto stands for."""
        chosen = self.options.backend
        return ("binary" if self.opened.is_binary else "exact") if chosen == "auto" else chosen

    @cached_property
    def index(self) -> Index:
        """The approximate index of the file."""
        assert self.kind.open_index is not None  # of the backends that the kind has
        return self.kind.open_index(self.opened, self.backend, lambda line: self.watch(Notice(line)))

    def find(self, vectors: Any, texts: Sequence[Texts], top: int) -> Iterator[Neighbourhood]:
        """Yield the `top` rows nearest to each of the vectors, of the file's kind; `texts`: of the queries."""
        rankings = self.rank(vectors, top)
        chosen = [list(ranking) for ranking in rankings]
        # The rows of all queries are read in one pass over the file, each once.
        wanted = sorted({index for indices in chosen for index in indices})
        rows = dict(zip(wanted, self.opened.rows(wanted), strict=True))
        words = self.explain(vectors, chosen)
        for number, ranking in enumerate(rankings):
            nearest = [
                self.describe(rows[index], score, words[number].get(index, {})) for index, score in ranking.items()
            ]
            yield Neighbourhood(query=texts[number] if texts else (), nearest=nearest)

    def describe(self, row: VectorRow, score: float | None, words: Mapping[str, float]) -> Neighbour | ScoredNeighbour:
        """Return a row of the file as a result, with its score and what makes it up."""
        if self.kind.score == "cosine":
            return Neighbour(cosine=score, line=row.line, texts=row.texts)
        return ScoredNeighbour(score=score, line=row.line, texts=row.texts, words=words)

    def rank(self, vectors: Any, count: int) -> list[dict[int, float]]:
        """Return the scores of the `count` rows nearest to each query by their indices, the best first."""
        above, most = self.options.above, 1.0 if self.kind.score == "cosine" else np.inf
        least = above if above != SearchOptions().above else -np.inf
        return [
            {
                # A sum in float32 may end above 1, or below -1.
                index: max(-most, min(score, most))
                for index, score in zip(indices.tolist(), scores.tolist(), strict=True)
                if score >= least
            }
            for indices, scores in self._compare(vectors, count)
        ]

    def explain(self, vectors: Any, chosen: Sequence[Sequence[int]]) -> Sequence[Mapping[int, Mapping[str, float]]]:
        """Return for each query what makes up the scores of its chosen rows, by their indices."""
        return self.kind.explain(vectors, chosen, self.opened, self.vocabulary)

    def _compare(self, vectors: Any, count: int) -> list[Ranking]:
        """Return the indices and scores of the rows nearest to each query."""
        if self.backend != "exact":
            return list(self.index.find(vectors, count))
        nearest = self.kind.nearest(vectors, count)
        for block in self.kind.blocks(self.opened):
            self.kind.require_comparable(self.opened, block.shape[1:])
            nearest.compare(block)
            self.watch(WorkProgress(of="search", done=nearest.rows, count=self.opened.count))
        return nearest.ranked


def _query_settings(engine: Engine, opened: VectorFile, role: str | None) -> VectorSettings:
    """Return how queries are embedded: as the texts of the file, but in the role of queries.

    Raises UserError if the file has vectors of a role that queries are not compared with, or of another length or
    prompt than the model has.
    """
    path, stored = opened.path, opened.settings["vectors"]
    try:
        settings = VectorSettings(**stored)
    except TypeError as error:
        raise UserError(
            f"{path} was made with settings that this osbert does not know ({error}).", code="wrong-format"
        ) from error
    if settings.length > engine.packer.length:
        raise UserError(
            f"{path} has vectors of up to {settings.length:,} tokens, and the model in {engine.folder} reads "
            f"{engine.packer.length:,}. Embed the texts again.",
            code="mismatched-base",
        )
    if role is None and "role" not in stored:  # of an earlier version, which applied no prompts
        return settings
    model = engine.sentence_model(settings.pooling)
    prompts = model.prompts if model else Prompts()
    if "role" in stored and (
        settings.role not in (None, *prompts.roles) or prompts.of(settings.role) != settings.prompt
    ):
        raise UserError(
            f"{path} was made with the prompt {settings.prompt!r:.60} (role {settings.role or 'none'}), which is not "
            f"that of the model in {engine.folder} any more. Embed the texts again.",
            code="mismatched-base",
        )
    wanted = role
    if role is None and settings.role in (None, *DOCUMENTS):
        wanted = QUERY if settings.role or QUERY in prompts.texts else None
    elif settings.role not in (None, *DOCUMENTS, role):
        raise UserError(
            f"{path} has vectors of the role {settings.role}, which are compared with texts of that role alone: give "
            f"--role {settings.role} for those. For queries, search a file that was made with --role {DOCUMENT}.",
            code="options-exclude-each-other",
        )
    prompt = prompts.of(wanted)
    length, longest = settings.length, engine.packer.length
    if model and model.late and wanted == QUERY:  # which is not as long as a document
        length = min(model.length_of(wanted) or longest, longest)
    return replace(settings, role=wanted, prompt=prompt, prompt_pooled=prompts.pooled or not prompt, length=length)
