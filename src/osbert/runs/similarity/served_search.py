"""The search of `osbert serve --vectors`: that of `osbert search`, whose files are opened again when they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.errors import UserError
from osbert.inference.vectors.reading import open_vectors, read_stamps
from osbert.interop.hub import locate
from osbert.interop.opening import Opening
from osbert.runs.similarity.settings import RankingOptions, SearchOptions

if TYPE_CHECKING:
    from osbert.inference.embedder import Embedder
    from osbert.inference.model import LoadedModel
    from osbert.runs.similarity.search import LoadModel, Neighbourhood, Texts

ATTEMPTS = 3
"""Times that a search is tried while its files are being replaced."""


@dataclass(frozen=True, kw_only=True)
class SearchedFiles:
    """The files of vectors that a server searches, and how. `model`: of the first one, if it has moved."""

    vectors: Path
    also: tuple[Path, ...] = ()
    model: Path | None = None
    ranking: RankingOptions = RankingOptions()  # noqa: RUF009 - it is frozen

    def check(self) -> None:
        """Raise UserError if a file is missing, empty or no file of vectors."""
        for path in (self.vectors, *self.also):
            if not open_vectors(path).count:
                raise UserError(f"{path} has no vectors: there is nothing to search.", code="no-data")

    @property
    def folder(self) -> Path:
        """The folder of the model of the first file."""
        return self.model or Path(open_vectors(self.vectors).settings["model"])

    @property
    def models(self) -> set[Path]:
        """The folders of the models of all files."""
        return {self.folder.resolve(), *(Path(open_vectors(path).settings["model"]).resolve() for path in self.also)}

    def stamps(self) -> list[Any]:
        """Return facts that change when a file is replaced, or the file with the texts of an .npy."""
        return [read_stamps(file) for file in (self.vectors, *self.also)]


def read_searched(
    vectors: Path | None, also: Sequence[Path], model: Path | None, ranking: RankingOptions
) -> SearchedFiles | None:
    """Return the files to search, None without `vectors`.

    Raises UserError if a file is missing, empty or no file of vectors, and for options without `vectors`.
    """
    if vectors is None:
        given = {"also": also, "model": model, **asdict(ranking)}
        usual = {"also": (), "model": None, **asdict(RankingOptions())}
        if idle := [name for name in given if given[name] != usual[name]]:
            raise UserError(f"--{idle[0]} is for a search: give --vectors FILE, too.", code="missing-option")
        return None
    if ranking.rerank:
        ranking = replace(ranking, rerank=str(locate(ranking.rerank).path))
    files = SearchedFiles(vectors=vectors, also=(*also,), model=model, ranking=ranking)
    files.check()
    return files


class ServedSearch:
    """A search that answers many requests. A worker has one thread, so that it needs no lock."""

    def __init__(
        self,
        files: SearchedFiles,
        *,
        device: str,
        opening: Opening,
        load_model: LoadModel,
        report: Callable[[str], None],
    ) -> None:
        """Open the files and read them once; `report` is told when they were opened again.

        Raises UserError if they are damaged, or of other models or texts.
        """
        from osbert.interop.folder import open_folder
        from osbert.runs.similarity.fused_search import require_reranker
        from osbert.runs.similarity.search import SearchRequest

        options = SearchOptions(device=device, **asdict(files.ranking))
        self.files = files
        self.request = SearchRequest(
            vectors=files.vectors, options=options, model=files.model, also=files.also, opening=opening
        )
        self.load_model = load_model
        self.report = report
        self.engines: list[LoadedModel] = []
        self._open()
        self.reranker = load_model(open_folder(options.rerank, opening), device) if options.rerank else None
        if self.reranker:
            require_reranker(self.reranker, options.rerank)
            if self.columns != 1:
                raise UserError("A reranker reads queries that are single texts.", code="options-exclude-each-other")

    def _open(self) -> None:
        """Open the files, and read each once: damage is refused now, and not in the middle of a request."""
        from osbert.inference.kinds import KINDS
        from osbert.runs.similarity.fused_search import FusedSearch

        stamps = self.files.stamps()
        self.files.check()
        search = FusedSearch.open(self.request, load_model=self.load_model).with_word_index()
        engines = [file.embedder.engine for file in search.files.values()]
        if self.engines and engines != self.engines:
            raise UserError("it is of another model now; start the server again.", code="mismatched-base")
        for file in search.files.values():
            for _ in KINDS[file.finder.opened.kind].blocks(file.finder.opened):
                pass
            if file.finder.backend != "exact":
                _ = file.finder.index
        self.search, self.stamps, self.engines = search, stamps, engines

    @property
    def columns(self) -> int:
        """The number of texts of a query: 2 for pairs."""
        return len(self.search.text_file.settings["columns"])

    @property
    def embedder(self) -> Embedder:
        """The model of the first file, for its queries."""
        return self.search.embedder

    def facts(self) -> dict[str, Any]:
        """Return what /v1/models says of the search."""
        return {"systems": self.search.systems, "columns": self.columns, "reranks": self.reranker is not None}

    def depth(self, top: int) -> int:
        """Return how many texts are ranked for a query before a reranker, if there is one, chooses `top` of them."""
        from osbert.evaluation.fusion import DEPTH

        return max(top, DEPTH) if self.reranker else top

    def find(self, queries: Sequence[Texts], top: int) -> list[Neighbourhood]:
        """Return the `top` texts nearest to each query, all of one state of the files.

        Raises UserError if the files are damaged, or of another model now.
        """
        from osbert.runs.similarity.fused_search import rerank

        problem = "it is being replaced"
        for _ in range(ATTEMPTS):
            try:
                if self.files.stamps() != self.stamps:
                    self._open()
                    self.report(f"osbert serve: {self.files.vectors} has changed and was opened again.")
                results = self.search.find(queries, self.depth(top))
            except (UserError, OSError) as error:
                if self.files.stamps() == self.stamps:
                    raise
                problem = str(error)
                continue
            if self.files.stamps() == self.stamps:
                return rerank(self.reranker, results, top) if self.reranker else results
        raise UserError(f"{self.files.vectors} has changed and cannot be searched: {problem}", code="damaged-file")
