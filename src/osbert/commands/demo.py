"""osbert demo: the whole chain, from the docstrings of this installation to a classifier and a report, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.commands.output import Result, for_people
from osbert.commands.printing import print_events
from osbert.lock import claim


def demo(
    *,
    out: Path = Path("demo"),
    vocabulary: int = 4096,
    steps: int = 1100,
    epochs: int = 0,
    rows: int = 30,
    source: Annotated[tuple[Path, ...], Parameter(negative=())] = (),
) -> Result:
    """Train a vocabulary, pretrain, fine-tune, predict and report, on text that this installation has.

    The text is the English in the docstrings of all installed libraries. The task is to tell which library a passage
    describes, with all names masked. Every step is an osbert command, printed as it runs, to repeat on files of your
    own. A demo that was stopped goes on when it is given again.

    Parameters
    ----------
    out
        The folder for everything; its report.html tells how it went.
    vocabulary
        Pieces of the vocabulary.
    steps
        Steps of pretraining.
    epochs
        Passes over the task's training rows, for each of the two classifiers; 0 leaves them to osbert finetune.
    rows
        Training rows of the task for each library.
    source
        Folders to take docstrings from, one folder inside them a library, instead of the installed ones.
    """
    from osbert.runs.demo.chain import DemoPlan, run_demo
    from osbert.training.interruption import sigterm_as_exit

    plan = DemoPlan(out=out, source=source, vocabulary=vocabulary, steps=steps, epochs=epochs, rows=rows)
    with claim(out), sigterm_as_exit():
        return {"report": run_demo(plan, shown=for_people(), watch=print_events())}
