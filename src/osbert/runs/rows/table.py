"""Verbs whose results are rows of a table: predict, score, generate and search compute results, a form writes them."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from osbert.errors import Problems
from osbert.files import replace_file
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch
from osbert.runs.rows.contract import ROWS, Appended, RowJob, RowSink, RowSource, RowStream
from osbert.runs.rows.forms.contract import RowForm, RowLayout, RowResult, ValueResult
from osbert.runs.rows.machine import open_machine, open_workspace
from osbert.runs.rows.output import RowOutput
from osbert.terminal import format_count
from osbert.training.run_folder import FACTS, OURS

Results = tuple[list[tuple[Row, RowResult]], dict[str, int]]
"""Rows to write with their results, and counts."""


@dataclass(frozen=True, kw_only=True)
class TableJob(RowJob):
    """A job that computes results for rows, which its `form` writes."""

    form: RowForm

    @abstractmethod
    def check_row(self, row: Any, problems: Problems) -> Row:
        """Add a row that cannot be used to `problems`; return it as a row of the table."""

    def check(self, watch: Watch) -> int:
        """Read the whole file and return its number of rows. Raises UserError that lists all unusable rows.

        Notices name what the form cannot hold.
        """
        problems = Problems(heading=f"{self.before.name} cannot be used")
        lost = LostFields(self.form)
        count = 0
        for count, row in enumerate(self.read(problems), 1):  # noqa: B007 - the count is returned
            lost.add(self.check_row(row, problems))
        problems.stop_if_any()
        lost.report(watch)
        return count

    @abstractmethod
    def results(self, window: Sequence[Any], tally: Mapping[str, int]) -> Results:
        """Return the rows to write for a window after those of `tally`, with their results, and the window's counts."""

    def compute(self, window: Sequence[Any], sink: RowSink) -> Appended:
        rows, counts = self.results(window, sink.tally)
        text = "".join(write_rows(self.form, rows, first=sink.tally.get(ROWS, 0)))
        return {ROWS: _encode(text)}, {ROWS: len(rows)} | counts

    def begin(self) -> bytes:
        return _encode(self.form.begin())

    def end(self, tally: Mapping[str, int]) -> bytes:
        return _encode(self.form.end(tally.get(ROWS, 0)))


Job = TypeVar("Job", bound=TableJob)


@dataclass(frozen=True, kw_only=True)
class ResultSource(RowSource[Job]):
    """A call whose results are written to `output` as rows of a table."""

    output: RowOutput

    def with_paths(self, file: Path, out: Path | None) -> Self:
        output = replace(self.output, path=out, stream=None) if out else self.output
        output.refuse_inputs((file, *(self.model / name for name in (*OURS, FACTS))))
        return replace(self, file=file, output=output)


def write_table(source: ResultSource[Job], watch: Watch) -> tuple[Job, Mapping[str, int]]:
    """Do the work of a source and write its output; return the job and its tally.

    Raises UserError that lists all unusable rows before anything is written.
    """
    with open_machine(source, source.output.kept, watch) as machine:
        job, output = machine.job, source.output
        if machine.work is None and job.form.is_text:
            with output.text_stream() as stream:

                def write(text: bytes) -> None:
                    stream.write(text.decode())
                    stream.flush()

                return job, machine.stream(RowStream(write))
        grown = machine.run()
        rows = grown.path(ROWS)
        if machine.work:
            replace_file(machine.work.out, lambda aside: job.form.finish(rows, aside))
            machine.work.end()
        else:
            # The form cannot be written row by row: it goes to the stream when it is complete.
            finished = machine.folder / "finished"
            job.form.finish(rows, finished)
            with output.byte_stream() as byte_stream, finished.open("rb") as file:
                shutil.copyfileobj(file, byte_stream, 2**20)
        return job, grown.tally


def write_rows(form: RowForm, rows: Iterable[tuple[Row, RowResult]], *, first: int = 0) -> Iterator[str]:
    """Yield the text of rows with their results; `first`: the index of the first one among the rows written."""
    for number, (row, result) in enumerate(rows, first):
        yield form.row(row, result, number)


def write_form(form: RowForm, out: Path, rows: Iterable[tuple[Row, RowResult]]) -> int:
    """Write rows that are computed at once, without a part to resume from; return their number."""
    count = 0
    with open_workspace(out, "rows that were begun") as (folder, work):
        assert work is not None  # of a path
        part = folder / f"{ROWS}.bin"
        with part.open("wb") as file:
            file.write(_encode(form.begin()))
            for count, line in enumerate(write_rows(form, rows), 1):  # noqa: B007 - the count is returned
                file.write(_encode(line))
            file.write(_encode(form.end(count)))
        replace_file(work.out, lambda aside: form.finish(part, aside))
    return count


def choose_form(out: Path, headings: Sequence[str]) -> RowForm:
    """Return the form of a file of values under headings, by its ending. Raises UserError for an unknown one."""
    return RowOutput(path=out).choose_form(RowLayout(file=out, columns=(), headings=headings))


def require_output(out: Path, inputs: Sequence[Path]) -> None:
    """Raise UserError if a file cannot be written, is one of `inputs`, or has no ending of a form."""
    RowOutput(path=out).refuse_inputs(inputs)
    choose_form(out, ())


def write_values(out: Path, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> int:
    """Write rows of values under headings to a file, in the form of its ending; return their number.

    >>> write_values(Path("rows.csv"), ["line", "text"], [[1, "a film"]])
    1
    >>> Path("rows.csv").read_text()
    'line,text\\n1,a film\\n'
    """
    form = choose_form(out, headings)
    results = (ValueResult(values=dict(zip(headings, row, strict=True))) for row in rows)
    return write_form(form, out, ((Row(line=0, values={}), result) for result in results))


class LostFields:
    """Collects, while the whole file is read, the fields of its rows that a form cannot hold."""

    def __init__(self, form: RowForm) -> None:
        self._form = form
        self._columns = set(form.layout.columns)
        self._late: dict[str, int] = {}
        self._nonfinite: dict[str, int] = {}
        self._long: dict[str, int] = {}

    def add(self, row: Row) -> None:
        """Add fields that appear after the first rows, columns with NaN or infinity and with long cells, with lines."""
        if longest := self._form.longest_cell:
            for name in (name for name, value in row.values.items() if len(value) > longest):
                self._long.setdefault(name, row.line)
        for name in row.values.keys() - self._columns if self._form.fixed_columns else ():
            self._late.setdefault(name, row.line)
        for name in sorted(row.nonfinite) if self._form.drops_nonfinite else ():
            self._nonfinite.setdefault(name, row.line)

    def report(self, watch: Watch) -> None:
        """Report a warning for each kind of loss."""
        if self._late:
            text = f"{name_first(self._late, 'more field')} is in none of the file's first rows and gets no column"
            watch(Notice(f"{text}: .jsonl and .parquet keep every field", warning=True))
        if self._nonfinite:
            text = f"{name_first(self._nonfinite, 'more column')} holds NaN or infinity, for which JSON has no number"
            watch(Notice(f"{text}: null in the output", warning=True))
        if self._long:
            text = f"{name_first(self._long, 'more column')} has more than {self._form.longest_cell:,} characters"
            watch(Notice(f"{text}, which a cell does not hold: it is cut. .csv and .parquet keep all", warning=True))


def name_first(lines: Mapping[str, int], noun: str) -> str:
    """Return the first of several columns by name, with its first line, and the number of the others.

    >>> name_first({"weight": 3, "age": 7}, "more column")
    "'weight' (first in line 3) and 1 more column"
    """
    name, line = next(iter(lines.items()))
    more = f" and {format_count(len(lines) - 1, noun)}" if len(lines) > 1 else ""
    return f"'{name}' (first in line {line}){more}"


def _encode(text: str) -> bytes:
    # A lone half of a surrogate pair, which JSON can hold, is written as JSON spells it.
    return text.encode("utf-8", "backslashreplace")
