"""osbert evaluate: how well a fine-tuned run does on a file with labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from osbert.commands.file_options import FileOptions
from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.interop.opening import CAREFUL
from osbert.tasks import Prediction, Record, Task, load
from osbert.tasks.calibration import columns, expected_error
from osbert.terminal import one_line, open_console


def evaluate(
    run: ModelFolder,
    /,
    *,
    data: Path,
    split: Literal["train", "dev", "test"] = "dev",
    label: str = "",
    file: Annotated[FileOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Score a fine-tuned run on a file with labels.

    Every label that the run does not know is told with its file, line and the nearest known one, before anything is
    computed.

    Parameters
    ----------
    run
        The folder of a fine-tuned run, or its name on the hub.
    data
        A CSV, TSV or JSON-lines file, all rows of which are used; or a folder.
    split
        Which file of a folder.
    label
        The column with the label; found by its name when left open.
    """
    from osbert.inference.engine import load as load_engine

    engine = load_engine(run, opening=opening)
    task = moved_task(engine.fine_tuned, data, file or FileOptions(), label=label)
    for remark in engine.remarks:
        print(f"{run}: {one_line(remark)}")
    task, by_split = load(task, ("all" if data.is_file() else split,), fit=False)
    (records,) = by_split.values()
    shared = not data.is_file() and task.source.shared(split)
    for line in (origin(data, records, shared=shared), *task.source.left_out("train" if shared else split)):
        print(one_line(line))
    result = engine.score(task, records)
    tell(task, records, result.predictions, result.metrics)
    cut = sum(prediction.truncated > 0 for prediction in result.predictions)
    if cut:
        print(
            f"{cut:,} texts are longer than the run reads ({task.limit(engine.packer)}); pieces {task.unread} were not "
            "read."
        )


def origin(data: Path, records: Sequence[Record], *, shared: bool) -> str:
    """Return in words which files records are of, and that they are a share of the training rows if they are."""
    paths = " and ".join(dict.fromkeys(record.path for record in records))
    if not shared:
        return f"rows of {paths}"
    return (
        f"{data} has no file for development: these are the rows of {paths} that a fine-tuning holds out. To score all "
        f"of its rows, give --data {paths}."
    )


def moved_task(task: Task, data: Path, options: FileOptions, *, label: str = "") -> Task:
    """Return the run's task for another file, read as the options say.

    Raises UserError when they are not for this task.
    """
    given = options.given() | ({"label": label} if label else {})
    return task.source.moved(data, given)


def tell(task: Task, records: Sequence[Record], predictions: Sequence[Prediction], metrics: dict[str, float]) -> None:
    """Print the scores, and what the task shows beside them: of a classifier, what was taken for what."""
    from rich.markup import escape  # a label such as [spam] is not markup
    from rich.table import Table

    from osbert.evaluation.score import class_scores

    console = open_console()
    print(f"{len(records):,} rows")
    scores = Table("score", "value", box=None)
    shown = {name: f"{value:.4f}" for name, value in metrics.items()}
    shown |= {f"f1/{name}": score for name, score in class_scores(task, metrics).items()}
    for name, score in shown.items():
        scores.add_row(escape(one_line(name)), score)
    console.print(scores)
    if task.weighed and (shares := columns(predictions, records)):
        print(f"expected calibration error of the probabilities: {expected_error(*shares):.4f}")
    details = task.details(predictions, records)
    if details:
        header, *rows = [[escape(one_line(cell)) for cell in cells] for cells in details]
        table = Table(*header, box=None)
        for cells in rows:
            table.add_row(*cells)
        console.print(table)
