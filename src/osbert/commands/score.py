"""osbert score: computes the likelihood of a text, or of each text of a file, under a language model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal  # noqa: F401  (cyclopts looks up inherited fields' types in this module)

from cyclopts import Parameter

from osbert.analysis.scoring import ScoringOptions
from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions, require_texts_or_file
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result, row_stream
from osbert.interop.opening import CAREFUL
from osbert.runs.file_options import EmbeddedTaskOptions, TextFile
from osbert.terminal import one_line


def score(
    model: ModelFolder,
    /,
    *texts: str,
    file: Annotated[InputFile | None, Parameter(allow_leading_hyphen=True)] = None,
    out: Path | None = None,
    scoring: Annotated[ScoringOptions | None, Parameter(name="*")] = None,
    reading: Annotated[EmbeddedTaskOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Score texts with a pretrained model: the log-probability of each piece, their sum, and perplexities.

    A masked language model predicts each piece from all others (the pseudo-log-likelihood, in nats), a left-to-right
    one from those before it. Compare only similar texts: the sums of masked models are not log-probabilities of texts.

    Parameters
    ----------
    model
        A pretrained model with its language head: a run folder, a Hugging Face folder, or a name.
    texts
        Texts, each in quotes.
    file
        A CSV, TSV, JSON-lines, Parquet or text file, a text a row; - for standard input.
    out
        The .csv, .tsv, .jsonl, .parquet, .xlsx or .md file with the rows and their scores. Without it JSON
        lines are printed.
    """
    from osbert.inference.engine import load
    from osbert.runs.rows.score import score_file

    usage = 'Give texts, as in osbert score MODEL "a text", or a file: --file in.csv --out out.csv.'
    require_texts_or_file(usage, texts, file, out, streams=True)
    scoring, reading = scoring or ScoringOptions(), reading or EmbeddedTaskOptions()
    if file is not None:
        rows, target = TextFile(file, reading), out or row_stream()
        with showing_progress("rows", sys.stderr) as watch:
            tally = score_file(model, rows, out=target, scoring=scoring, opening=opening, watch=watch)
        print(*tally.lines(), sep="\n", file=sys.stdout if out else sys.stderr)
        return tally if out else None
    text_scores = load(model, device=reading.device, opening=opening).score(texts, **vars(scoring))
    for text_score in text_scores:
        if len(text_scores) > 1:
            print(one_line(text_score.text))
        print(*map(one_line, text_score.lines()), sep="\n")
    return {"scores": [text_score.as_dict() for text_score in text_scores]}
