"""osbert mine: finds hard negatives in a corpus, for contrastive training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result
from osbert.interop.opening import CAREFUL
from osbert.runs.similarity.retrieval import RetrievalInput
from osbert.terminal import one_line
from osbert_lab.hard_negatives import MiningOptions, mine_negatives


def mine(
    *,
    out: Path,
    model: ModelFolder | None = None,
    corpus: InputFile | None = None,
    queries: InputFile | None = None,
    qrels: InputFile | None = None,
    data: InputFile | None = None,
    options: Annotated[MiningOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Find hard negatives: documents that an encoder or BM25 ranks high for a query without being relevant.

    The table has a row for each query and relevant document (positive), with negative_1, negative_2 and so on, as
    `osbert finetune contrastive` and rerank read them. Documents that score above all relevant ones of a query may be
    relevant, too: they are no negatives, and are written into a second table for review.

    Parameters
    ----------
    out
        The .jsonl, .csv, .tsv, .parquet, .xlsx or .md file to write.
    model
        The encoder: a folder, or a name (docs/models-by-name.md). Without one BM25 alone ranks.
    corpus
        The documents, as BEIR has them: JSON lines with _id, text and perhaps title; or a table with these columns.
    queries
        The queries, with _id and text.
    qrels
        The judgements: BEIR's table of query-id, corpus-id and score, or TREC's four columns.
    data
        One table of queries and documents, perhaps with a label, in place of --queries and --qrels. Without --corpus
        its documents are the corpus.
    """
    given = RetrievalInput(corpus=corpus, queries=queries, qrels=qrels, data=data)
    with showing_progress("texts") as watch:
        tally = mine_negatives(given, out=out, model=model, options=options, opening=opening, watch=watch)
    print(*map(one_line, tally.lines()), sep="\n")
    return tally
