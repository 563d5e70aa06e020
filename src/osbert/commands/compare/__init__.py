"""osbert compare: tests fine-tuned runs against each other on the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions
from osbert.console.output import Result, print_notices
from osbert.interop.opening import CAREFUL
from osbert.runs.file_options import LabelledOptions
from osbert.terminal import one_line


def compare(
    *runs: ModelFolder,
    data: InputFile,
    out: Path | None = None,
    split: Literal["train", "dev", "test"] = "dev",
    file: Annotated[LabelledOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Compare fine-tuned runs on the same rows: scores with intervals, McNemar's test and the bootstrap of each pair.

    Parameters
    ----------
    runs
        The folders of two fine-tuned runs or more, or their names on the hub.
    data
        A CSV, TSV or JSON-lines file, all rows of which are used; or a folder, of which --split is used.
    out
        The page to write, an .html file: also the rows on which the runs differ, side by side.
    """
    from osbert.runs.compare import compare as run
    from osbert.runs.evaluate import EvaluationOptions

    options = EvaluationOptions(file=file or LabelledOptions(), opening=opening)
    comparison = run(runs, data=data, split=split, out=out, options=options, watch=print_notices())
    print(*map(one_line, comparison.lines()), sep="\n")
    return comparison
