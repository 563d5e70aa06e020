"""osbert evaluate: how well a fine-tuned run does on a file with labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from osbert.data.table_format import Choice
from osbert.errors import UserError
from osbert.tasks import Prediction, Record, Task, load
from osbert.tasks.calibration import columns, expected_error


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How a file is to be read; what is left open is found by looking at it."""

    text: str = ""
    """The column with the text."""
    pair: str = ""
    """The column with the second text, where the run reads pairs."""
    delimiter: str = ""
    """What separates the cells."""
    header: Choice = "auto"
    """Whether the first line names the columns."""
    quotes: Choice = "auto"
    """Whether double quotes around a cell belong to the format."""
    encoding: str = ""
    """The file's encoding, where it is not UTF-8."""

    columns: str = ""
    """Columns for runs that answer or choose, by setting: question=frage,paragraph=text; several: choices=a+b+c."""

    def given(self) -> dict[str, Any]:
        """Return what was said, by the names of the task's settings. Raises UserError at columns without a setting."""
        said = {name: value for name, value in dataclasses.asdict(self).items() if value not in ("", "auto")}
        for part in filter(None, said.pop("columns", "").split(",")):
            setting, equals, column = part.partition("=")
            if not equals or not column:
                raise UserError(f"--columns {part}: give SETTING=COLUMN, such as question=frage.")
            said[setting.strip()] = tuple(column.split("+")) if "+" in column else column
        return said


def evaluate(
    run: Path,
    /,
    *,
    data: Path,
    split: Literal["train", "dev", "test"] = "dev",
    label: str = "",
    file: Annotated[FileOptions | None, Parameter(name="*")] = None,
) -> None:
    """Score a fine-tuned run on a file with labels.

    Every label that the run does not know is told with its file, line and the nearest known one, before anything is
    computed.

    Parameters
    ----------
    run
        The folder of a fine-tuned run.
    data
        A CSV, TSV or JSON-lines file, all rows of which are used; or a folder.
    split
        Which file of a folder.
    label
        The column with the label; found by its name when left open.
    """
    from osbert.serving.engine import load as load_engine

    engine = load_engine(run)
    task = moved_task(engine.fine_tuned, data, file or FileOptions(), label=label)
    for remark in engine.remarks:
        print(f"{run}: {remark}")
    task, by_split = load(task, ("all" if data.is_file() else split,), fit=False)
    (records,) = by_split.values()
    for line in task.left_out(split):
        print(line)
    result = engine.score(task, records)
    tell(task, records, result.predictions, result.metrics)
    cut = sum(prediction.truncated > 0 for prediction in result.predictions)
    if cut:
        print(
            f"{cut:,} texts are longer than the run reads ({task.limit(engine.packer)}); pieces {task.unread} were not "
            "read."
        )


def moved_task(task: Task, data: Path, options: FileOptions, *, label: str = "") -> Task:
    """Return the run's task for another file, read as the options say.

    Raises UserError when they are not for this task.
    """
    given = options.given() | ({"label": label} if label else {})
    return task.moved(data, given)


def tell(task: Task, records: Sequence[Record], predictions: Sequence[Prediction], metrics: dict[str, float]) -> None:
    """Print the scores, and what the task shows beside them: of a classifier, what was taken for what."""
    from rich.console import Console
    from rich.markup import escape  # a label such as [spam] is not markup
    from rich.table import Table

    console = Console()
    print(f"{len(records):,} rows")
    scores = Table("score", "value", box=None)
    for name, value in metrics.items():
        scores.add_row(escape(name), f"{value:.4f}")
    console.print(scores)
    if task.weighed and (shares := columns(predictions, records)):
        print(f"expected calibration error of the probabilities: {expected_error(*shares):.4f}")
    details = task.details(predictions, records)
    if details:
        table = Table(*map(escape, details[0]), box=None)
        for cells in details[1:]:
            table.add_row(*map(escape, cells))
        console.print(table)
