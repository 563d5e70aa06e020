"""Jobs whose results are rows of a table: predict, score and generate give results, a form writes them."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.files import replace_file
from osbert.runs.contract import Notice, Watch
from osbert.runs.rows.contract import ROWS, RowJob, RowSink, RowSource, RowStream
from osbert.runs.rows.forms.contract import ResultRow, RowForm
from osbert.runs.rows.machine import RowMachine
from osbert.runs.rows.output import RowOutput
from osbert.runs.rows.unfinished import UnfinishedOutput
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.corpus.task_options import TaskPlan
    from osbert.reading.table import Row


class TableJob(RowJob):
    """A job that gives results for rows, which its `form` writes."""

    form: RowForm

    @abstractmethod
    def results(self, window: Sequence[Any], tally: Mapping[str, int]) -> tuple[list[ResultRow], dict[str, int]]:
        """Return the rows to write for a window after those of `tally`, and the counts of the window."""

    def compute(self, window: Sequence[Any], sink: RowSink) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the text of the rows, and their counts."""
        rows, counts = self.results(window, sink.tally)
        return {ROWS: _encode("".join(map(self.form.row, rows)))}, {ROWS: len(rows)} | counts

    def begin(self) -> bytes:
        """Return what the form writes before the first row."""
        return _encode(self.form.begin())

    def end(self, tally: Mapping[str, int]) -> bytes:
        """Return what the form writes behind the last row."""
        return _encode(self.form.end(tally.get(ROWS, 0)))


class LostFields:
    """Notes, while the whole file is read, what of its rows a form cannot hold."""

    def __init__(self, form: RowForm) -> None:
        """Note nothing yet."""
        self._form = form
        self._columns = set(form.layout.columns)
        self._late: dict[str, int] = {}
        self._nonfinite: dict[str, int] = {}

    def add(self, row: Row) -> None:
        """Note fields that only come after the first rows, and columns with NaN or infinity, each with its line."""
        for name in row.values.keys() - self._columns if self._form.has_cells else ():
            self._late.setdefault(name, row.line)
        for name in sorted(row.nonfinite) if self._form.drops_nonfinite else ():
            self._nonfinite.setdefault(name, row.line)

    def notices(self) -> Iterator[Notice]:
        """Yield a warning for each kind of loss."""
        if self._late:
            text = f"{name_first(self._late, 'more field')} is in none of the file's first rows and gets no column"
            yield Notice(f"{text}: .jsonl and .parquet keep every field", warning=True)
        if self._nonfinite:
            text = f"{name_first(self._nonfinite, 'more column')} holds NaN or infinity, for which JSON has no number"
            yield Notice(f"{text}: null in the output", warning=True)


def name_first(lines: Mapping[str, int], noun: str) -> str:
    """Return the first of several columns by name, with its first line, and how many others there are.

    >>> name_first({"weight": 3, "age": 7}, "more column")
    "'weight' (first in line 3) and 1 more column"
    """
    name, line = next(iter(lines.items()))
    more = f" and {format_count(len(lines) - 1, noun)}" if len(lines) > 1 else ""
    return f"'{name}' (first in line {line}){more}"


def write_rows(
    job: TableJob,
    source: RowSource,
    output: RowOutput,
    *,
    folder: Path,
    work: UnfinishedOutput | None,
    plan: TaskPlan | None = None,
    watch: Watch,
) -> Mapping[str, int]:
    """Do the job and write the output; return the tally."""
    machine = RowMachine(job=job, folder=folder, work=work, watch=watch)
    if work is None and job.form.is_text:
        with output.text_stream() as stream:

            def write(text: bytes) -> None:
                stream.write(text.decode())
                stream.flush()

            return machine.stream(RowStream(write))
    grown = machine.run(source, plan)
    rows = grown.path(ROWS)
    if work:
        replace_file(work.out, lambda aside: job.form.finish(rows, aside))
        work.end()
    else:
        # The form cannot be written row by row: it goes to the stream when it is complete.
        job.form.finish(rows, folder / "finished")
        with output.byte_stream() as byte_stream, (folder / "finished").open("rb") as finished:
            shutil.copyfileobj(finished, byte_stream, 2**20)
    return grown.tally


def _encode(text: str) -> bytes:
    # A lone half of a surrogate pair, which JSON can hold, is written as JSON spells it.
    return text.encode("utf-8", "backslashreplace")
