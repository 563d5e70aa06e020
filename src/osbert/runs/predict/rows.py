"""The rows of a file as a fine-tuned run predicts them: opened, checked as a whole, and predicted window by window."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.errors import Problems
from osbert.interop.folder import open_folder
from osbert.interop.opening import Opening
from osbert.reading.form import plain_suffix
from osbert.reading.snapshot import Snapshot
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch
from osbert.runs.rows.forms.contract import PredictedRow, RowForm, RowLayout, name_first, nonfinite_notice
from osbert.runs.rows.options import FileOptions
from osbert.runs.rows.output import PredictionOutput, form_name
from osbert.tasks import Inputs, Prediction, Record, Task
from osbert.terminal import one_line

if TYPE_CHECKING:
    from osbert.inference.engine import Engine

TEXTS, CHARACTERS = 4096, 2**22
"""About the most texts, and characters, in memory at a time."""


@dataclass(frozen=True, kw_only=True)
class PredictedFile:
    """A file whose rows the model in the folder `run` predicts: its `path`, and the `output`.

    `name`: what messages call the file.
    """

    run: Path
    path: Path
    name: str
    options: FileOptions
    opening: Opening
    output: PredictionOutput


@dataclass(frozen=True, kw_only=True)
class PredictionRows:
    """The rows of a file, with the engine and the form; `before`: the file as it was when it was opened.

    `facts`: those that must be equal to resume a call. They contain no folders: data may move.
    """

    engine: Engine
    task: Task
    inputs: Inputs
    form: RowForm
    before: Snapshot
    facts: Mapping[str, Any]

    @classmethod
    def open(cls, source: PredictedFile, *, weights: bool = True) -> PredictionRows:
        """Open the model and the file. `weights`: whether those of the model belong to the facts. Raises UserError."""
        from osbert.inference.engine import load  # torch takes seconds to import

        folder = open_folder(source.run, source.opening)
        fingerprint = folder.fingerprint if weights else ""  # before `load`, which frees the memory of the weights
        engine = load(folder)
        task = engine.fine_tuned.source.switch_data(source.path, source.options.as_settings(engine.fine_tuned))
        inputs = task.source.inputs(source.path)
        output = source.output
        layout = RowLayout(
            file=source.path,
            task=task,
            inputs=inputs,
            options=output.options,
            bare=output.file is None,
            on_terminal=output.is_terminal,
        )
        form = source.output.form(layout)
        before = Snapshot(source.path, name=source.name)
        facts = {
            "ending": plain_suffix(source.path),
            "tokenizer": engine.tokenizer.fingerprint,
            "task": dataclasses.asdict(task) | {"data": "", "name": task.name},
            "output": dataclasses.asdict(source.output.options) | {"form": "", "out_form": form_name(type(form))},
        }
        plain = dict(json.loads(json.dumps(facts, default=str)))
        known = plain | {"input": before.sha256, "weights": fingerprint}
        return cls(engine=engine, task=task, inputs=inputs, form=form, before=before, facts=known)

    def check(self, watch: Watch) -> int:
        """Read the whole file and return its number of rows; see `check`."""
        return check(self.engine, self.inputs, self.before.path, form=self.form, watch=watch)

    def windows(self, tally: Mapping[str, int], stop: int | None = None) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yield (text, tally) for each window of rows after those of `tally`; the new tally includes the window.

        `stop`: the number of rows of the file to end after. Raises UserError if a row can no longer be read, or the
        file has changed.
        """
        problems = self.before.problems()
        for chunk in chunks(islice(self.inputs.rows(problems), tally.get("read", 0), stop)):
            problems.stop_if_any()
            self.before.require_same()
            predictions = iter(self.engine.predict_records([record for _, record in chunk if record is not None]))
            pairs = ((row, None if record is None else next(predictions)) for row, record in chunk)
            rows = list(self._decide_rows(pairs, tally.get("rows", 0)))
            text = ("" if tally else self.form.begin()) + "".join(map(self.form.row, rows))
            tally = _counts(tally, rows, len(chunk))
            chunk.clear()  # before the next window is read
            rows.clear()
            yield text, tally
        problems.stop_if_any()

    def _decide_rows(self, pairs: Iterator[tuple[Row, Prediction | None]], number: int) -> Iterator[PredictedRow]:
        """Yield the rows to write, numbered from `number`."""
        columns = self.form.layout.options
        for row, prediction in pairs:
            for part, part_prediction in self.inputs.parts(row, prediction):
                answer, withheld = (None, 0) if part_prediction is None else columns.decide(part_prediction)
                yield PredictedRow(number=number, row=part, prediction=answer, withheld=withheld)
                number += 1


def _counts(before: Mapping[str, int], rows: Sequence[PredictedRow], read: int) -> dict[str, int]:
    """Return the tally after `read` further rows of the file and the written `rows`."""
    counts = {
        "read": read,
        "rows": len(rows),
        "empty": sum(row.prediction is None for row in rows),
        "cut": sum(row.prediction is not None and row.prediction.truncated > 0 for row in rows),
        "withheld": sum(row.withheld for row in rows),
    }
    return {name: before.get(name, 0) + count for name, count in counts.items()}


def check(engine: Engine, inputs: Inputs, file: Path, *, form: RowForm, watch: Watch) -> int:
    """Read the whole file and return its number of rows.

    Raises one UserError with every row that cannot be used, or is too long if the task does not allow truncation.

    If the form writes rows by their ids, ids must be unique. Fields that occur only after the first rows have no column
    and are lost in forms with cells; a notice names them, and columns whose NaN or infinity the form drops.
    """
    problems = Problems(heading=f"{file} cannot be used")
    first: dict[str, str] = {}
    late: dict[str, int] = {}
    nonfinite: dict[str, int] = {}
    columns = {*inputs.columns} if form.has_cells else None
    count = 0
    for count, (row, record) in enumerate(inputs.rows(problems), 1):  # noqa: B007 - the count is returned
        if record is not None:
            engine.fine_tuned.refuse_long([record], engine.packer, problems)
        for name in row.values.keys() - columns if columns is not None else ():
            late.setdefault(name, row.line)
        for name in sorted(row.nonfinite) if form.drops_nonfinite else ():
            nonfinite.setdefault(name, row.line)
        if form.keyed:
            location = f"{file}, line {row.line}" if record is None else record.place
            called = inputs.name_row(row)
            if first.setdefault(called, location) != location:
                id_text = one_line(called)
                problems.add(
                    f"{location}: the id '{id_text}' is that of {first[called]} too. Mend it, or write .jsonl.",
                    code="duplicate-name",
                )
    problems.stop_if_any()
    if late:
        text = f"{name_first(late, 'more field')} is in none of the file's first rows and gets no column"
        watch(Notice(f"{text}: .jsonl and .parquet keep every field", warning=True))
    if nonfinite:
        watch(nonfinite_notice(nonfinite))
    return count


def chunks(rows: Iterator[tuple[Row, Record | None]]) -> Iterator[list[tuple[Row, Record | None]]]:
    """Yield chunks of rows. From a given row on the chunks are always the same."""
    chunk: list[tuple[Row, Record | None]] = []
    texts = characters = 0
    for row, record in rows:
        chunk.append((row, record))
        texts += 1 if record is None else len(record.texts)
        characters += 0 if record is None else sum(map(len, record.texts))
        if texts >= TEXTS or characters >= CHARACTERS:
            yield chunk
            chunk, texts, characters = [], 0, 0
    if chunk:
        yield chunk
