"""osbert explain: shows which words led a fine-tuned run to its prediction for a text, or for every row of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from osbert.analysis.settings import AttributionOptions
from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions, require_texts_or_file
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result
from osbert.errors import UserError
from osbert.extensions import require_extension
from osbert.interop.opening import CAREFUL
from osbert.runs.file_options import FileTaskOptions
from osbert.terminal import one_line


def explain(
    run: ModelFolder,
    /,
    *texts: str,
    file: InputFile | None = None,
    out: Path | None = None,
    label: str = "",
    rows: InputFile | None = None,
    count: int = 5,
    weighing: Annotated[AttributionOptions | None, Parameter(name="*")] = None,
    options: Annotated[FileTaskOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Show which words led to a prediction: for a text, a pair, or every row of a file.

    Each word has a weight, what it adds to the score of the answer; all weights sum to the score's distance from that
    of the same text without words. How far they miss that sum, and how far the words without which the score drops
    agree, is shown with them. Of a pretrained model, [MASK] is explained. A stopped command on a file can be resumed.

    Parameters
    ----------
    run
        The folder of a fine-tuned run, or of an encoder that fills masks, or a name on the hub.
    texts
        The text, in quotes; where the run reads several together, such as pairs, all of them in their order.
    file
        A CSV, TSV, JSON-lines or Parquet file, instead of a text.
    out
        The folder for a file's explanations: rows.csv, words.json and report.html.
    label
        Explain the score of this label, entity type, choice or piece instead of the predicted one.
    rows
        A file of training rows with labels: show the nearest rows, and the rows that changed the score most.
    count
        Number of rows to show in each order.
    """
    from osbert.inference.engine import load
    from osbert.runs.rows.explain import explain_file

    usage = 'Give one text, as in osbert explain RUN "a text", or a file and a folder: --file in.csv --out why.'
    require_texts_or_file(usage, texts, file, out)
    if rows and file:
        raise UserError(f"--rows goes with a text, not with --file. {usage}", code="missing-option")
    weighing = weighing or AttributionOptions()
    if file is not None and out is not None:
        with showing_progress("rows") as watch:
            tally = explain_file(
                run, file, out=out, label=label, weighing=weighing, options=options, opening=opening, watch=watch
            )
        print(tally.describe())
        return tally
    explanations = load(run, opening=opening).explain(texts, label=label, **vars(weighing))
    for explanation in explanations:
        print(*map(one_line, explanation.lines()), sep="\n")
    if not explanations:
        print("There is no answer to explain.")
    result: dict[str, Any] = {"explanations": [explanation.as_dict() for explanation in explanations]}
    if rows:
        training_rows = require_extension("osbert.runs", "training_rows", "--rows")
        with showing_progress("rows") as watch:
            rankings = training_rows(
                run, texts, rows=rows, label=label, count=count, options=options, opening=opening, watch=watch
            )
        print(*(one_line(line) for ranked in rankings for line in ranked.lines()), sep="\n")
        result["training_rows"] = rankings
    return result
