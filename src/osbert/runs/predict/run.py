"""Every row of a file predicted by a fine-tuned run: the file is checked whole before the first row is predicted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from osbert.errors import Problems
from osbert.files import require_file
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reading.snapshot import Snapshot
from osbert.reading.table import Row
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.file_options import FileOptions
from osbert.runs.predict.writers import PredictionOutput
from osbert.tasks import Inputs, Prediction, Record
from osbert.terminal import one_line
from osbert.training.run_folder import FACTS, OURS

if TYPE_CHECKING:
    from osbert.inference.engine import Engine

TEXTS = 4096
"""About the most texts in memory at a time."""


@dataclass(frozen=True, kw_only=True)
class PredictionTally:
    """How many rows a file has, how many of them are empty and have no prediction, and how many were cut.

    `limit`: in words, what the run reads of a text.
    """

    rows: int = 0
    empty: int = 0
    cut: int = 0
    limit: str = ""


def predict_file(
    run: Path,
    file: Path,
    *,
    output: PredictionOutput,
    options: FileOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> PredictionTally:
    """Predict every row of a file with the fine-tuned run in the folder `run`, and write the rows to `output`.

    Raises UserError when the file has rows that cannot be used, with all of them, before anything is written.
    """
    from osbert.inference.engine import load  # torch takes seconds to import

    out = output.path
    if out is not None:
        require_file(out, (file, *(run / name for name in (*OURS, FACTS))))
    with nullcontext(None) if out is None else claim(out) as claimed:
        engine = load(run, opening=opening)
        task = engine.fine_tuned
        task = task.source.moved(file, (options or FileOptions()).given(task))
        report_remarks(engine, watch)
        inputs = task.source.inputs(file)
        watch(Notice(inputs.describe))
        before = Snapshot(file)
        wanted = check(engine, inputs, file, keyed=output.is_official(inputs))
        read = count = empty = cut = 0
        with output.opened(claimed) as stream:
            writer = output.writer(stream, task, inputs)
            for row, prediction in predictions(engine, inputs, before):
                read += 1
                for part, said in inputs.parts(row, prediction):
                    writer.write(part, said)
                    count += 1
                    empty += said is None
                    cut += said is not None and said.truncated > 0
            before.require_rows(read, wanted)
            before.require_same(whole=True)
            writer.finish()
    return PredictionTally(rows=count, empty=empty, cut=cut, limit=task.limit(engine.packer))


def check(engine: Engine, inputs: Inputs, file: Path, *, keyed: bool) -> int:
    """Read the whole file and return how many rows it has.

    Raises one UserError with every row that cannot be used or may not be cut.

    `keyed`: predictions are written by the rows' ids, each of which must then be one row's alone.
    """
    problems = Problems(heading=f"{file} cannot be used")
    first: dict[str, str] = {}
    count = 0
    for count, (row, record) in enumerate(inputs.rows(problems), 1):  # noqa: B007 - the count is returned
        if record is not None:
            engine.fine_tuned.refuse_long([record], engine.packer, problems)
        if keyed:
            place = f"{file}, line {row.line}" if record is None else record.place
            called = inputs.called(row)
            if first.setdefault(called, place) != place:
                shown = one_line(called)
                problems.add(
                    f"{place}: the id '{shown}' is that of {first[called]} too. Mend it, or write .jsonl.",
                    code="duplicate-name",
                )
    problems.stop_if_any()
    return count


def predictions(engine: Engine, inputs: Inputs, before: Snapshot) -> Iterator[tuple[Row, Prediction | None]]:
    """Yield each row with its prediction, None where there is no text, a few thousand rows in memory at a time.

    Raises UserError where a row can no longer be read or the file is no longer what it was `before`.
    """
    problems = before.problems()
    for chunk in _chunks(inputs.rows(problems)):
        problems.stop_if_any()
        before.require_same()
        said = iter(engine.predict_records([record for _, record in chunk if record is not None]))
        yield from ((row, None if record is None else next(said)) for row, record in chunk)
    problems.stop_if_any()


def _chunks(rows: Iterator[tuple[Row, Record | None]]) -> Iterator[list[tuple[Row, Record | None]]]:
    chunk: list[tuple[Row, Record | None]] = []
    size = 0
    for row, record in rows:
        chunk.append((row, record))
        size += 1 if record is None else len(record.texts)
        if size >= TEXTS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
