"""osbert demo: runs the whole chain offline, from the docstrings of this installation to a classifier and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.output import Result, for_people, print_events
from osbert.lock import claim
from osbert.server import check_libraries


def demo(
    *,
    out: Path = Path("demo"),
    vocabulary: int = 4096,
    steps: int = 1100,
    epochs: int = 0,
    rows: int = 30,
    model: str = "minilm",
    source: Annotated[tuple[Path, ...], Parameter(negative=())] = (),
    serve: Annotated[bool, Parameter(negative=())] = False,
    port: int = 8000,
) -> Result:
    """Train a vocabulary, pretrain, fine-tune, predict and report, on the docstrings of the installed Python packages.

    The task is to predict which package a passage describes, with all names masked. The second half does it from a
    published encoder, explains an answer, and searches passages by their vectors. Every step is printed as an osbert
    command. The same command resumes a stopped demo.

    Parameters
    ----------
    out
        The folder for everything, with report.html.
    vocabulary
        Pieces of the vocabulary.
    steps
        Steps of pretraining.
    epochs
        Passes over the task's training rows, for each of the two classifiers; 0 leaves them to osbert finetune.
    rows
        Training rows of the task for each library.
    model
        The published encoder of the second half, a folder or a name; none for the first half alone.
    source
        Folders to take docstrings from, one folder inside them a library, instead of the installed ones.
    serve
        Serve all models of the demo on one page afterwards, until Ctrl-C (extra serve).
    port
        The port of that page; 0 for a free one.
    """
    from osbert.training.interruption import sigterm_as_exit
    from osbert_lab.demo.chain import run_demo, serve_demo
    from osbert_lab.demo.stages import DemoPlan

    if serve:
        check_libraries()
    sizes = {"vocabulary": vocabulary, "steps": steps, "epochs": epochs, "rows": rows}
    plan, watch = DemoPlan(out=out, source=source, model=model, **sizes), print_events()
    with sigterm_as_exit():
        with claim(out):
            report = run_demo(plan, shows_output=for_people(), watch=watch)
        if serve:
            serve_demo(plan, port=port, shows_output=for_people(), watch=watch)
    return {"report": report}
