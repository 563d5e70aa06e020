"""osbert submit: writes fine-tuned runs' predictions for GLUE's test sets in the evaluation server's format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import OpeningOptions
from osbert.console.output import Result, print_events
from osbert.interop.opening import CAREFUL


def submit(
    runs: Path,
    /,
    *,
    out: Path,
    data: Path | None = None,
    partial: Annotated[bool, Parameter(negative=())] = False,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Predict GLUE's test sets with fine-tuned runs, and write the file that the evaluation server takes.

    Each set is predicted with the run of its task, the diagnostic set (AX) with that of mnli. Labels are spelt as the
    server wants them, scores of STS-B are kept between 0 and 5. The server wants all files: where some cannot be made,
    they are named with the reason, and nothing is written without --partial.

    Parameters
    ----------
    runs
        The folder that `osbert finetune glue` filled, or any folder of runs.
    out
        The zip file to write.
    data
        The folder with GLUE's sets; left open, each run's own data.
    partial
        Write the files that can be made, although the server wants all.
    """
    from osbert_lab.papers.submit import submit as run_submit

    run_submit(runs, out=out, data=data, partial=partial, opening=opening, watch=print_events())
    return {"path": out}
