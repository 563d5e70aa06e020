"""osbert predict: predicts with a fine-tuned run for a text, a pair of texts, or every row of a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions, checks_options, require_texts_or_file
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result, print_notices, row_stream, rows_as_json
from osbert.errors import UserError
from osbert.inference.label_settings import LabelOptions
from osbert.interop.opening import CAREFUL, Opening
from osbert.remote import display_path
from osbert.runs.contract import Notice, report_remarks
from osbert.runs.file_options import FileTaskOptions
from osbert.runs.rows.prediction_settings import PredictionOptions
from osbert.runs.rows.standard_input import STREAM
from osbert.terminal import format_count, one_line


def _check(arguments: Mapping[str, Any]) -> None:
    if arguments.get("file") and (written := arguments.get("written")):
        written.check()


@checks_options(_check)
def predict(
    run: ModelFolder,
    /,
    *texts: str,
    file: Annotated[InputFile | None, Parameter(allow_leading_hyphen=True)] = None,
    out: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    options: Annotated[FileTaskOptions | None, Parameter(name="*")] = None,
    written: Annotated[PredictionOptions | None, Parameter(name="*")] = None,
    naming: Annotated[LabelOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Predict with a fine-tuned run, or classes by name (--labels): one text, a pair or more, or every row of a file.

    A file needs no label column. Its rows come out in their order with all their columns, and with the prediction, the
    probability of every label by its name, and `truncated`, the pieces at the text's end that were not read. Rows with
    an empty text have an empty prediction, and so have the blank lines of a file of one column, a .txt file included.
    Memory does not grow with the file. The same command resumes a stopped one after the last rows that it wrote.

    Parameters
    ----------
    run
        The folder of a fine-tuned run, or its name on the hub. A pretrained encoder fills each [MASK] in a text.
    texts
        The text, in quotes (-- before one that begins with a hyphen); all texts if the run reads several together.
    file
        A CSV, TSV, JSON-lines or Parquet file, instead of a text; - for standard input.
    out
        The file to write: .csv, .tsv, .jsonl, .parquet, .xlsx or .md; or .json for answers to questions, in the form
        that SQuAD's official scorer reads. A .csv file of a .csv file keeps its delimiter, line ends and byte-order
        mark. Without it, and with -, the rows go to standard output.
    """
    from osbert.runs.rows.output import RowOutput
    from osbert.runs.rows.predict import PredictionSource, predict_file

    usage = 'Give one text, as in osbert predict RUN "a text", or a file: --file in.csv --out out.csv.'
    require_texts_or_file(usage, texts, file, None, streams=True)
    if file is None:
        if options or out or written:
            raise UserError(
                "--out, what it holds (--top-k, ...) and how to read a file (--text, ...) go with --file, not a text.",
                code="options-exclude-each-other",
            )
        if not any(text.strip() for text in texts):
            raise UserError("The text is empty: there is nothing to predict for it.", code="empty-text")
        return print_prediction(run, texts, opening, naming)
    written = written or PredictionOptions()
    if rows_as_json() and out in (None, STREAM):
        written = replace(written, out_form=written.out_form or "jsonl")
    output = RowOutput(path=out, stream=row_stream())
    if naming:
        from osbert.runs.rows.label_names import label_source
    with showing_progress("rows", sys.stderr) as watch:  # standard output is for the rows
        source: Callable[..., PredictionSource] = label_source(naming) if naming else PredictionSource
        tally = predict_file(
            run, file, output=output, written=written, options=options, source=source, opening=opening, watch=watch
        )
        watch(Notice(f"{', '.join(tally.describe())}{f' -> {display_path(out)}' if out and output.file else ''}"))
    return tally if output.file else None


def print_prediction(run: Path, texts: tuple[str, ...], opening: Opening, naming: LabelOptions | None) -> Result:
    """Print the prediction for one text, or for several that the run reads together; return its fields."""
    from osbert.inference.engine import load
    from osbert.inference.pieces import MASK, FilledText

    engine: Any = load(run, opening=opening)
    if naming:
        from osbert.inference.label_predictor import LabelPredictor

        engine = LabelPredictor(engine, naming.names(), naming)
    if not naming and engine.task is None and len(texts) == 1 and MASK in texts[0]:
        prediction = FilledText(engine.fill(texts[0]))
    else:
        [prediction] = engine.predict([texts])
    report_remarks(engine, print_notices(sys.stderr))
    print(*map(one_line, prediction.lines()), sep="\n")
    if prediction.truncated:
        limits, were = engine.fine_tuned.description, "was" if prediction.truncated == 1 else "were"
        pieces, limit = format_count(prediction.truncated, "piece"), limits.limit(engine.packer)
        print(f"  {pieces} {limits.unread} {were} not read: the run reads {limit}.")
    if prediction.unknown:
        print("  Most of its pieces are unknown: the model's vocabulary lacks its script.")
    return prediction.as_dict()
