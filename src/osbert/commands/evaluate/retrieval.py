"""osbert evaluate retrieval: measures how well a search finds the documents that were judged relevant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal  # noqa: F401  (cyclopts looks up inherited fields' types in this module)

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result
from osbert.interop.opening import CAREFUL
from osbert.runs.similarity.retrieval import RetrievalInput, RetrievalOptions, evaluate_retrieval
from osbert.terminal import one_line


def retrieval(
    *,
    model: ModelFolder | None = None,
    corpus: InputFile | None = None,
    queries: InputFile | None = None,
    qrels: InputFile | None = None,
    data: InputFile | None = None,
    results: Annotated[tuple[InputFile, ...], Parameter(consume_multiple=True)] = (),
    run: Path | None = None,
    out: Path | None = None,
    options: Annotated[RetrievalOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Measure a search by judged documents: nDCG, MAP, MRR, recall and precision, as trec_eval does, beside BM25.

    Parameters
    ----------
    model
        The encoder: a folder, or a name (docs/models-by-name.md). Without one BM25 alone is measured.
    corpus
        The documents, as BEIR has them: JSON lines with _id, text and perhaps title; or a table with these columns.
    queries
        The queries, with _id and text.
    qrels
        The judgements: BEIR's table of query-id, corpus-id and score, or TREC's four columns.
    data
        One table with the columns query, document and label in place of --queries and --qrels. Without --corpus its
        documents are the corpus.
    results
        Rankings of other systems to score beside: TREC runs. For these alone --qrels suffices.
    run
        A file for the ranking of the first system, a TREC run.
    out
        A table of the scores of each query: .csv, .tsv, .jsonl, .parquet, .xlsx or .md.
    """
    from osbert.runs.compare import run_names

    given = RetrievalInput(
        corpus=corpus, queries=queries, qrels=qrels, data=data, results=dict(zip(run_names(results), results))
    )
    with showing_progress("texts") as watch:
        evaluation = evaluate_retrieval(
            given, model=model, run=run, out=out, options=options or RetrievalOptions(), opening=opening, watch=watch
        )
    print(*map(one_line, evaluation.lines()), sep="\n")
    return evaluation
