"""osbert prune: writes a fine-tuned run without its least important heads, or with fewer layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import ModelFolder, OpeningOptions
from osbert.console.output import Result, print_notices, watching
from osbert.interop.opening import CAREFUL
from osbert.runs.contract import Notice
from osbert.runs.file_options import LabelledOptions
from osbert_lab.pruning.settings import PruneSettings


def prune(
    run: ModelFolder,
    /,
    *,
    out: Path | None = None,
    settings: Annotated[PruneSettings | None, Parameter(name="*")] = None,
    file: Annotated[LabelledOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Write a fine-tuned run with fewer attention heads or layers, and compare both on the development rows.

    Heads are ranked by the gradient of the loss on up to 512 training rows, as in `osbert analyse`, and each layer
    loses as many. The new folder is smaller; predict, evaluate, export, serve and finetune take it like the run.

    Parameters
    ----------
    run
        The folder of a fine-tuned run.
    out
        The folder to write; left open, RUN-pruned beside the run.
    """
    from osbert_lab.pruning.prune import prune as run_prune

    watch = watching(print_notices())
    pruned = run_prune(run, settings=settings or PruneSettings(), out=out, options=file, opening=opening, watch=watch)
    for line in pruned.lines():
        print(line)
    watch(Notice(f"-> {pruned.folder}"))
    return pruned
