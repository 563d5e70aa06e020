"""osbert analyse: measures what a model has learnt, as a report of figures and plots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import ModelFolder, OpeningOptions
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result
from osbert.corpus.task_options import TaskOptions
from osbert.interop.opening import CAREFUL
from osbert.reading.documents import DocumentOptions
from osbert.terminal import one_line
from osbert_lab.analysis.settings import AnalysisOptions, AnalysisRequest


def analyse(
    run: ModelFolder,
    /,
    *,
    data: Path,
    out: Path,
    analysis: Annotated[AnalysisOptions | None, Parameter(name="*")] = None,
    reading: Annotated[DocumentOptions | None, Parameter(name="*")] = None,
    work: Annotated[TaskOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Measure what a model has learnt: all that the data allows, in one pass, as report.html and analysis.json.

    Text gives what each head looks at, which heads are alike, and the geometry of the states; dependency trees
    (CoNLL-U) give which heads follow which relations; minimal pairs, facts and pairs of sentences what a pretrained
    model prefers. Fractions and accuracies have intervals and baselines. The same command resumes a stopped run after
    its last finished analysis.

    Parameters
    ----------
    run
        A run folder, a Hugging Face folder, or a name (docs/models-by-name.md).
    data
        A file, or a folder with files: .conllu for trees, called train, dev or test; .txt, .jsonl and Parquet for text;
        tables of pairs and facts, known by their columns (docs/analysis.md).
    out
        The folder to write.
    """
    from osbert_lab.analysis.model_analysis import analyse as run_analysis

    request = AnalysisRequest(
        analysis=analysis or AnalysisOptions(),
        file=reading or DocumentOptions(),
        opening=opening,
        work=work or TaskOptions(),
    )
    with showing_progress("tokens") as watch:
        report = run_analysis(run, data=data, out=out, request=request, watch=watch)
    print(*map(one_line, report.lines()), sep="\n")
    return report
