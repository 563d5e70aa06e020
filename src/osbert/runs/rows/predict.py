"""Predicts every row of a file with a fine-tuned run, window by window, after the whole file was checked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.errors import Problems, UserError
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.data_file import DataFile
from osbert.reading.form import plain_suffix
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.file_options import FileOptions
from osbert.runs.rows.contract import ROWS, RowProgress
from osbert.runs.rows.forms.contract import ResultRow, RowForm, RowLayout
from osbert.runs.rows.machine import open_workspace
from osbert.runs.rows.output import RowOutput, form_name
from osbert.runs.rows.prediction_settings import PredictionColumns, PredictionOptions, WrittenPrediction
from osbert.runs.rows.standard_input import as_given, resolve_input
from osbert.runs.rows.table import LostFields, TableJob, write_rows
from osbert.runs.rows.texts import local_files
from osbert.tasks import Inputs, Record, Task
from osbert.tasks.tables import note_long
from osbert.terminal import format_count, one_line
from osbert.training.run_folder import FACTS, OURS

if TYPE_CHECKING:
    from osbert.inference.engine import Engine

TEXTS, CHARACTERS = 4096, 2**22
"""About the most texts, and characters, in memory at a time."""


class PredictionProgress(RowProgress):
    """Event: `done` of `count` rows are predicted and written."""


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
class PredictedFile:
    """A file whose rows the model in the folder `run` predicts; `name`: what messages call the file."""

    run: Path
    path: Path
    name: str
    options: FileOptions
    opening: Opening
    output: RowOutput
    written: PredictionOptions

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths of the model and of the file."""
        return self.run, self.path

    def open(self) -> PredictionJob:
        """Open the model and the file. Raises UserError."""
        from osbert.inference.engine import load  # torch takes seconds to import

        folder = open_folder(self.run, self.opening)
        weights = folder.fingerprint if self.output.kept else ""  # before `load`, which frees the memory of the weights
        engine = load(folder)
        task = engine.fine_tuned.source.switch_data(self.path, self.options.as_settings(engine.fine_tuned))
        inputs = task.source.inputs(self.path)
        form = self._choose_form(task, inputs)
        before = inputs.table.file if inputs.table else DataFile(self.path, name=self.name)
        written = dataclasses.asdict(self.written) | {"form": "", "out_form": form_name(type(form))}
        facts = {
            "ending": plain_suffix(self.path),
            "tokenizer": engine.tokenizer.fingerprint,
            "task": dataclasses.asdict(task) | {"data": "", "name": task.name},
            "output": written,
        }
        plain = dict(json.loads(json.dumps(facts, default=str)))
        return PredictionJob(
            engine=engine,
            task=task,
            inputs=inputs,
            columns=self.written,
            form=form,
            before=before,
            facts=plain | {"input": before.sha256, "weights": weights},
        )

    def _choose_form(self, task: Task, inputs: Inputs) -> RowForm:
        written = self.written
        form = self.output.choose_form(
            RowLayout(
                file=self.path,
                columns=inputs.columns,
                headings=list(written.cells(task, None)),
                table=inputs.table,
                lines=inputs.lines,
                name_row=inputs.name_row if inputs.key else None,
                task=task,
                bare=self.output.file is None,
                on_terminal=self.output.is_terminal,
                spreadsheet_safe=self.output.spreadsheet_safe,
                complete=not (written.top_k or written.probabilities),
            )
        )
        if not form.has_columns and (written.top_k or written.probabilities):
            raise UserError(
                f"--top-k and --probabilities have no place in the form '{form_name(type(form))}': "
                "write .jsonl or .csv.",
                code="options-exclude-each-other",
            )
        return form


@dataclass(frozen=True, kw_only=True)
class PredictionJob(TableJob):
    """The rows of a file, with the engine that predicts them and the form that writes them."""

    progress = PredictionProgress

    engine: Engine
    task: Task
    inputs: Inputs
    columns: PredictionColumns
    form: RowForm
    before: DataFile
    facts: Mapping[str, Any]

    def check(self, watch: Watch) -> int:
        """Read the whole file and return its number of rows.

        Raises one UserError with every row that cannot be used, or is too long if the task does not allow truncation.
        If the form writes rows by their ids, ids must be unique. Notices name what the form cannot hold.
        """
        problems = Problems(heading=f"{self.before.path} cannot be used")
        locations: dict[str, str] = {}
        lost = LostFields(self.form)
        count = 0
        for count, (row, record) in enumerate(self.inputs.rows(problems), 1):  # noqa: B007 - the count is returned
            if record is not None:
                note_long(self.engine.fine_tuned, [record], self.engine.packer, problems)
            lost.add(row)
            if self.form.keyed:
                location = f"{self.before.path}, line {row.line}" if record is None else record.place
                called = self.inputs.name_row(row)
                if locations.setdefault(called, location) != location:
                    problems.add(
                        f"{location}: the id '{one_line(called)}' is that of {locations[called]} too. Mend it, or "
                        "write .jsonl.",
                        code="duplicate-name",
                    )
        problems.stop_if_any()
        for notice in lost.notices():
            watch(notice)
        return count

    def windows(self, start: int = 0, stop: int | None = None) -> Iterator[list[tuple[Row, Record | None]]]:
        """Yield rows with their records, with limits on texts and characters."""
        problems = self.before.problems()
        window: list[tuple[Row, Record | None]] = []
        texts = characters = 0
        for row, record in islice(self.inputs.rows(problems), start, stop):
            window.append((row, record))
            texts += 1 if record is None else len(record.texts)
            characters += 0 if record is None else sum(map(len, record.texts))
            if texts >= TEXTS or characters >= CHARACTERS:
                problems.stop_if_any()
                yield window
                window, texts, characters = [], 0, 0
        problems.stop_if_any()
        if window:
            yield window

    def results(
        self, window: Sequence[tuple[Row, Record | None]], tally: Mapping[str, int]
    ) -> tuple[list[ResultRow], dict[str, int]]:
        """Return the rows with their predictions."""
        predictions = iter(self.engine.predict_records([record for _, record in window if record is not None]))
        rows: list[ResultRow] = []
        first = tally.get(ROWS, 0)
        for row, record in window:
            for part, prediction in self.inputs.parts(row, None if record is None else next(predictions)):
                answer, withheld = (None, 0) if prediction is None else self.columns.decide(prediction)
                result = WrittenPrediction(task=self.task, columns=self.columns, prediction=answer, withheld=withheld)
                rows.append(ResultRow(number=first + len(rows), row=part, result=result))
        answers = [row.result.prediction for row in rows]
        counts = {
            "empty": answers.count(None),
            "cut": sum(prediction is not None and prediction.truncated > 0 for prediction in answers),
            "withheld": sum(row.result.withheld for row in rows),
        }
        return rows, counts


def predict_file(
    run: Path,
    file: Path,
    *,
    output: RowOutput,
    written: PredictionOptions | None = None,
    options: FileOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> PredictionTally:
    """Predict every row of a file with the fine-tuned run in the folder `run`, and write the rows to `output`.

    `file`: - for standard input. An output file gets its name when it is complete; until then its rows are in
    OUT.unfinished, and the same call resumes a stopped one.

    Raises UserError that lists all unusable rows before anything is written, and if the unfinished work is of another
    call.
    """
    from osbert.runs.rows.tasks import row_plan

    written, options = written or PredictionOptions(), options or FileOptions()
    written.check()
    output = replace(output, out_form=written.out_form, spreadsheet_safe=written.spreadsheet_safe)
    with local_files(file, output.kept) as (local, out):
        output = replace(output, path=out or output.path)
        output.refuse_inputs((local, *(run / name for name in (*OURS, FACTS))))
        with open_workspace(output.kept, "a prediction that was begun") as (folder, work):
            # Standard input is copied to the folder, so that a stopped prediction can read it again.
            path = resolve_input(local, folder, form=written.form)
            plan = row_plan(options, is_kept=work is not None)
            source = PredictedFile(
                run=run,
                path=path,
                name=as_given(str(path), folder),
                options=options,
                opening=opening,
                output=output,
                written=written,
            )
            job = source.open()
            report_remarks(job.engine, watch)
            watch(Notice(as_given(job.inputs.describe, folder)))
            if left_out := written.left_out(job.task):
                watch(Notice(left_out))
            tasks_source = replace(
                source, run=run.absolute(), path=path.absolute(), output=replace(output, stream=None)
            )
            tally = write_rows(job, tasks_source, output, folder=folder, work=work, plan=plan, watch=watch)
        counts = {name: tally.get(name, 0) for name in ("rows", "empty", "cut", "withheld")}
        return PredictionTally(**counts, limit=job.task.description.limit(job.engine.packer))
