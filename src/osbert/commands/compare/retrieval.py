"""osbert compare retrieval: tests the rankings of search systems against each other, query by query."""

from __future__ import annotations

from pathlib import Path

from osbert.commands.evaluate.retrieval import retrieval as evaluate
from osbert.console.arguments import InputFile
from osbert.console.output import Result
from osbert.errors import UserError
from osbert.runs.similarity.retrieval import RetrievalOptions


def retrieval(
    *runs: InputFile, qrels: InputFile, measures: str = RetrievalOptions.measures, out: Path | None = None
) -> Result:
    """Compare TREC runs on the same queries: scores with intervals, and a randomization test of each pair.

    Parameters
    ----------
    runs
        Two TREC runs or more, such as `osbert evaluate retrieval --run` writes.
    qrels
        The judgements: BEIR's table of query-id, corpus-id and score, or TREC's four columns.
    measures
        Measures, separated by commas; the runs are tested by the first.
    out
        A table of the scores of each query: .csv, .tsv, .jsonl, .parquet, .xlsx or .md.
    """
    if len(runs) < 2:
        raise UserError(
            "Give two runs or more: osbert compare retrieval A.trec B.trec --qrels FILE.", code="missing-value"
        )
    return evaluate(qrels=qrels, results=runs, out=out, options=RetrievalOptions(measures=measures))
