"""osbert search: finds the texts of a file of vectors that are nearest to queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions, require_texts_or_file
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL
from osbert.runs.file_options import TextFile, TextTaskOptions
from osbert.runs.similarity.settings import Backend, SearchOptions  # noqa: F401  (types of fields)
from osbert.terminal import one_line


@dataclass(frozen=True, kw_only=True)
class SearchArguments(SearchOptions):
    """How the nearest texts are searched; --count is the older name of --top."""

    top: Annotated[int, Parameter(name=("--top", "--count"))] = 10


def search(
    vectors: InputFile,
    /,
    *texts: str,
    file: Annotated[InputFile | None, Parameter(allow_leading_hyphen=True)] = None,
    out: Path | None = None,
    options: Annotated[SearchArguments | None, Parameter(name="*")] = None,
    reading: Annotated[TextTaskOptions | None, Parameter(name="*")] = None,
    model: ModelFolder | None = None,
    also: tuple[InputFile, ...] = (),
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Show the texts whose vectors are nearest to that of a query, with their cosines and line numbers.

    A query is embedded as the texts of the file were, by the same model, but in the role of a query (--role).

    Parameters
    ----------
    vectors
        A file that `osbert embed` wrote: .npy, .npz or .parquet, with one vector a text.
    texts
        Queries, in quotes; two texts for each if the file has pairs.
    file
        A file of queries, as `osbert embed` reads it; with --out.
    out
        With --file: the .csv, .tsv, .jsonl, .parquet, .xlsx or .md file to write, a row for each result.
    model
        The model, if it has moved: a folder, or a name (docs/models-by-name.md).
    also
        A further file of vectors of the same texts, dense or sparse, whose ranking is fused; may be repeated.
    """
    from osbert.runs.similarity.fused_search import search_files
    from osbert.runs.similarity.search import SearchRequest, list_lines

    usage = 'Give queries, as in osbert search VECTORS "a text", or a file of them: --file in.csv --out out.csv.'
    require_texts_or_file(usage, texts, file, out)
    if reading and not file:
        raise UserError(f"--text and how to read a file go with --file. {usage}", code="missing-option")
    source = SearchRequest(vectors=vectors, options=options or SearchOptions(), model=model, also=also, opening=opening)
    if file and out:
        from osbert.runs.similarity.search_file import search_file

        with showing_progress("queries") as watch:
            tally = search_file(source, TextFile(file, reading or TextTaskOptions()), out=out, watch=watch)
        print(*tally.lines(), sep="\n")
        return tally
    with showing_progress("vectors") as watch:
        rankings = search_files(source, source.group_texts(texts), watch=watch)
    for line in list_lines(rankings):
        print(one_line(line))
    return rankings[0] if len(rankings) == 1 else {"queries": rankings}
