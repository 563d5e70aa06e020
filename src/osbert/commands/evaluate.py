"""osbert evaluate: how well a fine-tuned run does on a file with labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.commands.output import Result
from osbert.commands.printing import print_notices
from osbert.interop.opening import CAREFUL
from osbert.runs.file_options import LabelledOptions
from osbert.terminal import counted, in_columns

if TYPE_CHECKING:
    from osbert.runs.evaluate import Evaluation


def evaluate(
    run: ModelFolder,
    /,
    *,
    data: Path,
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
        A file for the scores as well, as one JSON object.
    split
        Which file of a folder.
    """
    from osbert.runs.evaluate import EvaluationOptions
    from osbert.runs.evaluate import evaluate as score

    options = EvaluationOptions(file=file or LabelledOptions(), opening=opening)
    evaluation = score(run, data=data, split=split, out=out, options=options, watch=print_notices())
    print_scores(evaluation)
    if cut := evaluation.truncated:
        are = "text is" if cut == 1 else "texts are"
        print(
            f"{cut:,} {are} longer than the run reads ({evaluation.limit}); pieces {evaluation.task.unread} were not "
            "read."
        )
    return evaluation


def print_scores(evaluation: Evaluation) -> None:
    """Print the scores, and what the task shows beside them: of a classifier, the confusion table."""
    from osbert.evaluation.score import class_scores

    task, records, predictions = evaluation.task, evaluation.records, evaluation.predictions
    print(counted(len(records), "row"))
    shown = {name: f"{value:.4f}" for name, value in evaluation.metrics.items()}
    shown |= {f"f1/{name}": score for name, score in class_scores(task, evaluation.metrics).items()}
    for line in in_columns([("score", "value"), *shown.items()]):
        print(line)
    if (error := evaluation.calibration_error) is not None:
        print(f"expected calibration error of the probabilities: {error:.4f}")
    for line in in_columns(task.details(predictions, records)):
        print(line)
