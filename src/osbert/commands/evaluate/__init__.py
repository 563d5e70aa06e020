"""osbert evaluate: scores a fine-tuned run on a file with labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions, checks_options
from osbert.console.output import Result, print_notices
from osbert.interop.opening import CAREFUL
from osbert.runs.file_options import LabelledOptions


def _check(arguments: Mapping[str, Any]) -> None:
    from osbert.runs.evaluate import require_score_form

    if (out := arguments.get("out")) is not None:
        require_score_form(out)


@checks_options(_check)
def evaluate(
    run: ModelFolder,
    /,
    *,
    data: InputFile,
    out: Path | None = None,
    split: Literal["train", "dev", "test"] = "dev",
    file: Annotated[LabelledOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Score a fine-tuned run on a file with labels.

    Every label that the run does not know is reported with its file, line and the nearest known one, before anything is
    computed.

    Parameters
    ----------
    run
        The folder of a fine-tuned run, or its name on the hub.
    data
        A CSV, TSV or JSON-lines file, all rows of which are used; or a folder.
    out
        A file for the scores as well: .html, a page with intervals and the wrong rows; else one JSON object.
    split
        Which file of a folder.
    """
    from osbert.runs.evaluate import EvaluationOptions
    from osbert.runs.evaluate import evaluate as score

    options = EvaluationOptions(file=file or LabelledOptions(), opening=opening)
    evaluation = score(run, data=data, split=split, out=out, options=options, watch=print_notices())
    print(*evaluation.lines(), sep="\n")
    return evaluation
