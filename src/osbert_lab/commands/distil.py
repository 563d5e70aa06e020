"""osbert distil: trains a smaller encoder on the outputs of a fine-tuned run."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from osbert import recipe
from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions, checks_options
from osbert.console.output import Result
from osbert.console.training_consoles import TrainingConsole
from osbert.interop.opening import CAREFUL
from osbert.options import parse_settings, takes_settings
from osbert_lab.distillation.settings import DistilOptions, DistilSettings


def _check(arguments: Mapping[str, Any]) -> None:
    chosen = recipe.settings(DistilSettings, parse_settings(arguments.get("settings", ()), DistilOptions))
    (chosen.check_static if arguments.get("to") == "static" else chosen.check)(student="student" in arguments)


@checks_options(_check)
@takes_settings(lambda words: [DistilOptions])
def distil(
    teacher: ModelFolder,
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, help="Settings, as shown below.")],
    out: Path,
    data: InputFile | None = None,
    texts: InputFile | None = None,
    student: ModelFolder | None = None,
    to: Literal["run", "static"] = "run",
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Train a smaller encoder on the outputs of the fine-tuned run TEACHER, or write static vectors: docs/distil.md.

    Parameters
    ----------
    data
        Rows with labels, in any form that osbert finetune reads; their columns are detected as by osbert evaluate.
    out
        The student's run folder.
    texts
        A file with more rows; labels in it are ignored, and the student learns the teacher's predictions.
    student
        An encoder with no more layers than the teacher, in place of layers of the teacher.
    to
        static: a table of vectors of the encoder TEACHER's pieces, compared on --data, pairs with a number.
    """
    from osbert.training.interruption import Interruption, StopRequest
    from osbert_lab.distillation import distillation as run

    chosen = parse_settings(settings, DistilOptions)
    chosen |= {"opening.trust": opening.trust, "opening.verify": opening.verify}
    request = run.DistilRequest(teacher, data, out, texts=texts, student=student, to=to, settings=chosen)
    wish = Interruption()  # entered while the student trains: before, a signal ends the work at once
    try:
        with TrainingConsole() as watch:
            return run.distil_to(request, watch=watch, wish=wish)
    except StopRequest:
        raise KeyboardInterrupt if wish.signal == signal.SIGINT else SystemExit(wish.status) from None
