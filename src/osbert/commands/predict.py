"""osbert predict: what a fine-tuned run says of a text, a pair of texts, or every row of a file."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TextIO

from cyclopts import Parameter

from osbert.commands.evaluate import FileOptions, moved_task
from osbert.data.table import Row, Table
from osbert.data.table_columns import Columns
from osbert.errors import Problems, UserError
from osbert.tasks import Prediction, TableTask

if TYPE_CHECKING:
    from osbert.serving.engine import Engine, Text

ROWS = 2048
"""Rows in memory at a time."""


def predict(
    run: Path,
    text: str | None = None,
    pair: str | None = None,
    /,
    *,
    file: Path | None = None,
    out: Path | None = None,
    options: Annotated[FileOptions | None, Parameter(name="*")] = None,
) -> None:
    """Predict with a fine-tuned run: one text (or a pair), or every row of a file.

    A file needs no label column. Its rows come out in their order with all their columns, and with the prediction, the
    probability of every label by its name, and `truncated`, the pieces at the text's end that were not read. Rows with
    an empty text have an empty prediction.

    Parameters
    ----------
    run
        The folder of a fine-tuned run.
    text
        The text, in quotes; write -- before one that begins with a hyphen.
    pair
        The second text, where the run reads pairs.
    file
        A CSV, TSV or JSON-lines file, instead of a text.
    out
        The file to write: .csv, .tsv or .jsonl. Without it the rows go to standard output.
    """
    from osbert.serving.engine import load

    if (text is None) == (file is None):
        raise UserError('Give one text, as in osbert predict RUN "a text", or a file: --file in.csv --out out.csv.')
    if file is None:
        if options or out:
            raise UserError("--out and how to read a file (--text, ...) go with --file, not with a single text.")
        assert text is not None
        tell(load(run), text if pair is None else (text, pair))
        return
    predict_file(load(run), file, out, options or FileOptions())


def tell(engine: Engine, text: Text) -> None:
    """Print the prediction for one text or pair."""
    prediction = engine.predict([text])[0]
    tell_remarks(engine)
    value = prediction.value
    print(f"{value:.4f}" if isinstance(value, float) else value)
    for label, probability in sorted(prediction.probabilities.items(), key=lambda item: -item[1]):
        print(f"  {probability:7.2%}  {label}")
    if prediction.truncated:
        print(
            f"  {prediction.truncated:,} pieces at the end were not read: the run reads {engine.packer.length} tokens."
        )


def tell_remarks(engine: Engine) -> None:
    """Print what was odd about the model's folder, aside from the predictions."""
    for remark in engine.remarks:
        print(f"{engine.folder}: {remark}", file=sys.stderr)


def predict_file(engine: Engine, file: Path, out: Path | None, options: FileOptions) -> None:
    """Predict every row of a file; its rows are checked whole before the first is predicted."""
    task = moved_task(engine.fine_tuned, file, options)
    tell_remarks(engine)
    if not isinstance(task, TableTask):
        raise UserError(f"The task {task.name} does not read tables.")
    table = task.open(file)
    found = task.columns(table, labelled=False)
    columns = Columns(text=found.text, pair=found.pair)
    print(f"{table.describe()}; {columns.describe()}", file=sys.stderr)
    check(task, table, columns)
    count = empty = cut = 0
    with writing(out) as stream:
        writer = open_writer(out, stream, table, labels=getattr(task, "labels", ()))
        for row, prediction in predictions(engine, task, table, columns):
            writer.write(row, prediction)
            count += 1
            empty += prediction is None
            cut += prediction is not None and prediction.truncated > 0
    notes = [f"{count:,} rows"]
    notes += [f"{empty:,} without text have no prediction"] if empty else []
    notes += [f"{cut:,} longer than {engine.packer.length} tokens, see the column truncated"] if cut else []
    print(f"{', '.join(notes)}{f' -> {out}' if out else ''}", file=sys.stderr)


def check(task: TableTask, table: Table, columns: Columns) -> None:
    """Read the whole table and raise one UserError with every row that cannot be used."""
    problems = Problems(heading=f"{table.path} cannot be used")
    for row in table.rows(problems):
        try:
            task.record(row, columns)
        except ValueError as error:
            problems.add(f"{table.path}, line {row.line}: {error}.")
    problems.stop_if_any()


def predictions(
    engine: Engine, task: TableTask, table: Table, columns: Columns
) -> Iterator[tuple[Row, Prediction | None]]:
    """Yield each row with its prediction, None where there is no text, a few thousand rows in memory at a time."""
    rows = table.rows(Problems(heading=str(table.path)))
    while chunk := list(islice(rows, ROWS)):
        records = [task.record(row, columns, number=number) for number, row in enumerate(chunk)]
        full = [record for record in records if any(text.strip() for text in record.texts)]
        said = dict(zip((record.number for record in full), engine.predict_records(full)))
        yield from ((row, said.get(number)) for number, row in enumerate(chunk))


class Writer(Protocol):
    """Writes rows with their predictions."""

    def write(self, row: Row, prediction: Prediction | None) -> None:
        """Write one row."""
        ...


class LineWriter:
    """JSON lines: the object as it was, with "prediction", "probabilities" and "truncated"."""

    def __init__(self, stream: TextIO, table: Table) -> None:
        """Write to `stream`."""
        self.stream = stream
        self.names = _free(["prediction", "probabilities", "truncated"], table.columns)

    def write(self, row: Row, prediction: Prediction | None) -> None:
        """Write one row as an object."""
        values: tuple[Any, ...] = (None, None, 0)
        if prediction is not None:
            values = (prediction.value, dict(prediction.probabilities) or None, prediction.truncated)
        line = {**(row.source or row.values), **dict(zip(self.names, values))}
        self.stream.write(json.dumps(line, ensure_ascii=False) + "\n")


class CellWriter:
    """CSV or TSV: the columns as they were, then prediction, one probability a label, and truncated."""

    def __init__(self, stream: TextIO, table: Table, *, labels: Sequence[str], delimiter: str) -> None:
        """Write the header to `stream`."""
        self.columns = table.columns
        self.labels = labels
        self.cells = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
        added = ["prediction", *(f"probability of {label}" for label in labels), "truncated"]
        self.cells.writerow([*self.columns, *_free(added, self.columns)])

    def write(self, row: Row, prediction: Prediction | None) -> None:
        """Write one row."""
        said: list[Any] = [""] * (len(self.labels) + 2)
        if prediction is not None:
            shares = [f"{prediction.probabilities[label]:.6f}" for label in self.labels]
            said = [prediction.value, *shares, prediction.truncated]
        self.cells.writerow([*(row.values.get(name, "") for name in self.columns), *said])


def open_writer(out: Path | None, stream: TextIO, table: Table, *, labels: Sequence[str]) -> Writer:
    """Return the writer for the output's name; on standard output the form is the input's."""
    suffix = out.suffix.lower() if out else {"jsonl": ".jsonl"}.get(table.format.kind, ".csv")
    if suffix in (".jsonl", ".ndjson", ".json"):
        return LineWriter(stream, table)
    if suffix in (".csv", ".tsv"):
        return CellWriter(stream, table, labels=labels, delimiter="\t" if suffix == ".tsv" else ",")
    raise UserError(f"{out}: predictions are written as .csv, .tsv or .jsonl.")


@contextmanager
def writing(out: Path | None) -> Iterator[TextIO]:
    """Give a file that gets its name when it is complete, or standard output."""
    if out is None:
        yield sys.stdout
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.name}.part")
    try:
        with aside.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)


def _free(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return the names, with a number behind each that the table has already."""
    free = []
    for name in names:
        number, wanted = 2, name
        while wanted in taken:
            wanted, number = f"{name} {number}", number + 1
        free.append(wanted)
    return free
