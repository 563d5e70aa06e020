"""osbert compare: fine-tuned runs on the same rows, tested against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.commands.output import Result
from osbert.commands.printing import print_notices
from osbert.interop.opening import CAREFUL
from osbert.runs.file_options import LabelledOptions
from osbert.terminal import in_columns, one_line


def compare(
    *runs: ModelFolder,
    data: Path,
    out: Path | None = None,
    split: Literal["train", "dev", "test"] = "dev",
    file: Annotated[LabelledOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Compare fine-tuned runs on the same rows with labels: scores with intervals, and a test of each pair.

    Two runs are tested by McNemar's exact test, where a row is right or wrong, and by the paired bootstrap of their
    score. The p-values of several pairs are corrected by Holm's method.

    Parameters
    ----------
    runs
        The folders of two fine-tuned runs or more, or their names on the hub.
    data
        A CSV, TSV or JSON-lines file, all rows of which are used; or a folder.
    out
        The page to write, an .html file: also the rows on which the runs differ, side by side.
    split
        Which file of a folder.
    """
    from osbert.runs.compare import compare as run
    from osbert.runs.evaluate import EvaluationOptions

    options = EvaluationOptions(file=file or LabelledOptions(), opening=opening)
    found = run(runs, data=data, split=split, out=out, options=options, watch=print_notices())
    for rows in (found.scores(), found.pairs()):
        for line in in_columns(rows):
            print(one_line(line))
        print()
    print(found.method())
    print(f"The runs answer {len(found.differing):,} of {len(found.records):,} rows differently.")
    if out:
        print(f"page: {out}")
    return found
