"""osbert predict: what a fine-tuned run says of a text, a pair of texts, or every row of a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.commands.output import Result, row_stream, rows_as_json
from osbert.commands.printing import print_notices
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.runs.contract import Notice, report_remarks
from osbert.runs.file_options import FileOptions
from osbert.terminal import counted, one_line


def predict(
    run: ModelFolder,
    /,
    *texts: str,
    file: Path | None = None,
    out: Path | None = None,
    options: Annotated[FileOptions | None, Parameter(name="*")] = None,
    spreadsheet_safe: bool = False,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Predict with a fine-tuned run: one text (or a pair, or all that it reads together), or every row of a file.

    A file needs no label column. Its rows come out in their order with all their columns, and with the prediction, the
    probability of every label by its name, and `truncated`, the pieces at the text's end that were not read. Rows with
    an empty text have an empty prediction, and so have the blank lines of a file of one column, a .txt file included.

    Parameters
    ----------
    run
        The folder of a fine-tuned run, or its name on the hub.
    texts
        The text, in quotes; write -- before one that begins with a hyphen. Where the run reads several texts together,
        such as pairs, all of them in their order.
    file
        A CSV, TSV or JSON-lines file, instead of a text.
    out
        The file to write: .csv, .tsv or .jsonl; or .json for answers to questions, in the form that SQuAD's official
        scorer reads. A .csv file of a .csv file keeps its delimiter, line ends and byte-order mark. Without it the rows
        go to standard output.
    spreadsheet_safe
        Write an apostrophe before each cell of a CSV or TSV that a spreadsheet would take for a formula: one that
        begins with = + - @, a tab or a line end, and is not a number.
    """
    from osbert.runs.predict.run import predict_file
    from osbert.runs.predict.writers import PredictionOutput

    if bool(texts) == (file is not None):
        raise UserError(
            'Give one text, as in osbert predict RUN "a text", or a file: --file in.csv --out out.csv.',
            code="missing-option",
        )
    if file is None:
        if options or out or spreadsheet_safe:
            raise UserError(
                "--out and how to read a file (--text, ...) go with --file, not with a single text.",
                code="options-exclude-each-other",
            )
        if not any(text.strip() for text in texts):
            raise UserError("The text is empty: there is nothing to predict for it.", code="empty-text")
        return print_prediction(run, texts, opening)
    output = PredictionOutput(path=out, stream=row_stream(), spreadsheet_safe=spreadsheet_safe, lines=rows_as_json())
    watch = print_notices(sys.stderr)  # standard output is for the rows
    tally = predict_file(run, file, output=output, options=options, opening=opening, watch=watch)
    notes = [counted(tally.rows, "row")]
    notes += (
        [f"{tally.empty:,} without text {'has' if tally.empty == 1 else 'have'} no prediction"] if tally.empty else []
    )
    notes += [f"{tally.cut:,} longer than {tally.limit}, see the column truncated"] if tally.cut else []
    watch(Notice(f"{', '.join(notes)}{f' -> {out}' if out else ''}"))
    return tally if out else None


def print_prediction(run: Path, texts: tuple[str, ...], opening: Opening) -> Result:
    """Print the prediction for one text, or for several that are read together; return its fields."""
    from osbert.inference.engine import load

    engine = load(run, opening=opening)
    prediction = engine.predict([texts])[0]
    report_remarks(engine, print_notices(sys.stderr))
    for line in prediction.lines():
        print(one_line(line))
    if prediction.truncated:
        limit, where = engine.fine_tuned.limit(engine.packer), engine.fine_tuned.unread
        were = "was" if prediction.truncated == 1 else "were"
        print(f"  {counted(prediction.truncated, 'piece')} {where} {were} not read: the run reads {limit}.")
    return prediction.as_dict()
