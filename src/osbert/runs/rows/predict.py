"""Predicts every row of a file with a fine-tuned run, window by window, after the whole file was checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from osbert.errors import Problems, UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.data_file import DataFile
from osbert.reading.form import plain_suffix
from osbert.reading.table import Row
from osbert.runs.contract import Watch, ignore, warn_unknown
from osbert.runs.file_options import FileOptions
from osbert.runs.rows.forms.contract import RowLayout, RowResult
from osbert.runs.rows.output import RowOutput, form_name
from osbert.runs.rows.prediction_settings import PredictionColumns, PredictionOptions, WrittenPrediction
from osbert.runs.rows.table import Results, ResultSource, TableJob, write_table
from osbert.tasks import Inputs, Record, Task
from osbert.tasks.tables import note_long
from osbert.terminal import format_count, one_line

if TYPE_CHECKING:
    from osbert.inference.engine import Engine

TEXTS, CHARACTERS = 4096, 2**22
"""About the most texts, and characters, in memory at a time."""


@dataclass(frozen=True, kw_only=True)
class PredictionTally:
    """Counts of written rows, of empty ones without a prediction, and of truncated ones.

    `withheld`: answers below the probability of --abstain. `limit`: a description of how much of a text is read.
    """

    rows: int = 0
    empty: int = 0
    cut: int = 0
    withheld: int = 0
    limit: str = ""

    def describe(self) -> Iterator[str]:
        """Yield sentences with the counts that are not 0."""
        yield format_count(self.rows, "row")
        if self.empty:
            yield f"{self.empty:,} without text {'has' if self.empty == 1 else 'have'} no prediction"
        if self.cut:
            yield f"{self.cut:,} longer than {self.limit}, see the column truncated"
        if self.withheld:
            yield f"{format_count(self.withheld, 'answer')} withheld, see the column abstained"


@dataclass(frozen=True, kw_only=True)
class PredictionSource(ResultSource["PredictionJob"]):
    """A call that predicts the rows of a file with a fine-tuned run."""

    work_name = "a prediction that was begun"

    reading: FileOptions
    written: PredictionOptions

    def open(self) -> PredictionJob:
        written = self.written
        engine, weights = self.load_model(resumable=bool(self.output.kept))
        task = engine.fine_tuned.source.switch_data(self.file, self.reading.as_settings(engine.fine_tuned))
        inputs = task.source.inputs(self.file)
        layout = RowLayout(
            file=self.file,
            columns=inputs.columns,
            headings=list(written.cells(task, None)),
            table=inputs.table,
            lines=inputs.lines,
            name_row=inputs.name_row if inputs.key else None,
            task=task,
            complete=not (written.top_k or written.probabilities),
        )
        form = self.output.choose_form(layout)
        if not form.has_columns and not layout.complete:
            raise UserError(
                f"The form '{form_name(type(form))}' has no columns for --top-k and --probabilities. Write .jsonl or "
                ".csv.",
                code="options-exclude-each-other",
            )
        before = inputs.table.file if inputs.table else DataFile(self.file, name=self.name)
        facts = {
            "ending": plain_suffix(self.file),
            "tokenizer": engine.tokenizer.fingerprint,
            "task": asdict(task) | {"data": "", "name": task.name},
            "output": asdict(written) | {"form": "", "out_form": form_name(type(form))},
        }
        plain = dict(json.loads(json.dumps(facts, default=str)))
        return PredictionJob(
            engine=engine,
            task=task,
            inputs=inputs,
            columns=written,
            form=form,
            before=before,
            facts=plain | {"input": before.sha256, "weights": weights},
        )


@dataclass(frozen=True, kw_only=True)
class PredictionJob(TableJob):
    """The rows of a file, with the engine that predicts them and the form that writes them."""

    work = "prediction"

    engine: Engine
    task: Task
    inputs: Inputs
    columns: PredictionColumns
    locations: dict[str, str] = field(default_factory=dict)
    """The first row of each id."""

    @property
    def window_size(self) -> tuple[int, int]:
        return TEXTS, CHARACTERS

    @property
    def description(self) -> str:
        return self.inputs.describe

    def describe(self) -> Iterator[str]:
        yield from super().describe()
        if left_out := self.columns.left_out(self.task):
            yield left_out

    def sizes(self, row: tuple[Row, Record | None]) -> tuple[int, int]:
        return (1, 0) if row[1] is None else (len(row[1].texts), sum(map(len, row[1].texts)))

    def read(self, problems: Problems) -> Iterator[tuple[Row, Record | None]]:
        return iter(self.inputs.rows(problems))

    def check_row(self, row: tuple[Row, Record | None], problems: Problems) -> Row:
        """Add a row to `problems` that is too long for its task, or whose id is another row's if the form needs ids."""
        table_row, record = row
        if record is not None:
            note_long(self.engine.fine_tuned, [record], self.engine.packer, problems)
        if self.form.keyed:
            location = f"{self.before.path}, line {table_row.line}" if record is None else record.place
            called = self.inputs.name_row(table_row)
            if (other := self.locations.setdefault(called, location)) != location:
                problems.add(
                    f"{location}: the id '{one_line(called)}' is that of {other}, too. Change one, or write .jsonl.",
                    code="duplicate-name",
                )
        return table_row

    def results(self, window: Sequence[tuple[Row, Record | None]], tally: Mapping[str, int]) -> Results:
        record_predictions = self.engine.predict_records([record for _, record in window if record is not None])
        predictions = iter(record_predictions)
        rows: list[tuple[Row, RowResult]] = []
        for row, record in window:
            for part, prediction in self.inputs.parts(row, None if record is None else next(predictions)):
                answer, withheld = (None, 0) if prediction is None else self.columns.decide(prediction)
                result = WrittenPrediction(task=self.task, columns=self.columns, prediction=answer, withheld=withheld)
                rows.append((part, result))
        answers = [result.prediction for _, result in rows]
        return rows, {
            "empty": answers.count(None),
            "cut": sum(prediction is not None and prediction.truncated > 0 for prediction in answers),
            "withheld": sum(result.withheld for _, result in rows),
            "unknown": sum(prediction.unknown for prediction in record_predictions),
        }


def predict_file(
    run: Path,
    file: Path,
    *,
    output: RowOutput,
    written: PredictionOptions | None = None,
    options: FileOptions | None = None,
    source: Callable[..., PredictionSource] = PredictionSource,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> PredictionTally:
    """Predict every row of a file with the fine-tuned run in the folder `run`, and write the rows to `output`.

    `source`: makes the source; label_names.py has one for classes that the model was not trained for.

    `file`: - for standard input. An output file gets its name when it is complete; until then its rows are in
    OUT.unfinished, and the same call resumes a stopped one.

    Raises UserError that lists all unusable rows before anything is written, and if the unfinished work is of another
    call.
    """
    written = written or PredictionOptions()
    written.check()
    opened = source(
        model=run,
        file=file,
        reading=options or FileOptions(),
        opening=opening,
        form=written.form,
        output=replace(output, out_form=written.out_form, spreadsheet_safe=written.spreadsheet_safe),
        written=written,
    )
    job, tally = write_table(opened, watch)
    warn_unknown(tally.get("unknown", 0), watch)
    counts = {name: tally.get(name, 0) for name in ("rows", "empty", "cut", "withheld")}
    return PredictionTally(**counts, limit=job.task.description.limit(job.engine.packer))
