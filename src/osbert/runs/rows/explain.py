"""The rows of a file with the explanations of their predictions, computed in this process or in tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.analysis.settings import AttributionOptions
from osbert.errors import Problems, UserError
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.snapshot import Snapshot
from osbert.runs.contract import Notice, Watch
from osbert.runs.rows.options import FileTaskOptions
from osbert.runs.rows.part import RowPart
from osbert.runs.rows.tasks import RowRange, RowTasks, require_facts, require_whole
from osbert.runs.rows.unfinished import UnfinishedOutput, explaining_stops
from osbert.tasks import Inputs
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.analysis.explanation import Explanation
    from osbert.inference.engine import Engine

WINDOW = 16
"""Rows that are explained together."""


@dataclass(frozen=True, kw_only=True)
class ExplanationProgress:
    """Event: `done` of `count` rows are explained."""

    done: int
    count: int


@dataclass(frozen=True, kw_only=True)
class ExplanationKeywords:
    """The keywords of `osbert.explain`: the method, how the file is read, how the folder is opened."""

    weighing: AttributionOptions = field(default_factory=AttributionOptions)
    file: FileTaskOptions = field(default_factory=FileTaskOptions)
    opening: Opening = CAREFUL


@dataclass(frozen=True, kw_only=True)
class ExplanationSource:
    """A file, and the folder `run` of the model whose predictions for its rows are explained.

    `label`: explain its score, "" for that of the prediction.
    """

    run: Path
    file: Path
    label: str
    options: ExplanationKeywords


@dataclass(frozen=True, kw_only=True)
class ExplainedRow:
    """A row of a file with the explanations of its prediction; none for a row without text, which has no `texts`."""

    line: int
    values: Mapping[str, Any]
    texts: tuple[str, ...] = ()
    prediction: object = None
    explanations: tuple[Explanation, ...] = ()

    def as_line(self) -> str:
        """Return it as one line of JSON. Cells of a table are text, as a table holds them; floats keep all digits."""
        fields = {
            "line": self.line,
            "values": {name: _cell(value) for name, value in self.values.items()},
            "texts": self.texts,
            "prediction": _cell(self.prediction),
            "explanations": [explanation.as_dict() for explanation in self.explanations],
        }
        return json.dumps(fields) + "\n"

    @classmethod
    def of_line(cls, line: str) -> ExplainedRow:
        """Return what `as_line` wrote."""
        from osbert.analysis.explanation import Explanation, WordWeight

        fields = json.loads(line)
        explanations = tuple(
            Explanation(**{**explanation, "words": tuple(WordWeight(**word) for word in explanation["words"])})
            for explanation in fields.pop("explanations")
        )
        return cls(**{**fields, "texts": tuple(fields["texts"]), "explanations": explanations})


def _cell(value: object) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class ExplainedRows:
    """The rows of a file, with the model; `before`: the file as it was opened. `weights`: the hash of the model's."""

    source: ExplanationSource
    engine: Engine
    inputs: Inputs
    before: Snapshot
    weights: str

    @classmethod
    def open(cls, source: ExplanationSource) -> ExplainedRows:
        """Open the model and the file. Raises UserError."""
        from osbert.inference.engine import load  # torch takes seconds to import

        folder = open_folder(source.run, source.options.opening)
        weights = folder.fingerprint  # before `load`, which frees the memory of the weights
        engine = load(folder)
        task = engine.fine_tuned.source.switch_data(source.file, source.options.file.as_settings(engine.fine_tuned))
        before = Snapshot(source.file)
        return cls(source=source, engine=engine, inputs=task.source.inputs(source.file), before=before, weights=weights)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts that must be equal in all tasks."""
        return {
            "input": self.before.sha256,
            "weights": self.weights,
            "label": self.source.label,
            "method": asdict(self.source.options.weighing),
            "columns": self.inputs.describe.partition(": ")[2],  # without the name of the file, which may move
        }

    def check(self) -> int:
        """Read the whole file and return its number of rows. Raises UserError that lists all unusable ones."""
        problems = Problems(heading=f"{self.source.file} cannot be used")
        count = 0
        for _, record in self.inputs.rows(problems):
            count += 1
            if record is not None:
                self.engine.fine_tuned.refuse_long([record], self.engine.packer, problems)
        problems.stop_if_any()
        if not count:
            raise UserError(f"{self.source.file} has no rows to explain.", code="no-data")
        return count

    def explain_rows(self, start: int = 0, stop: int | None = None) -> Iterator[ExplainedRow]:
        """Yield the rows from number `start` to `stop` with their explanations."""
        from osbert.inference.explain import explain_records

        problems = Problems(heading="The file has changed")
        rows = islice(self.inputs.rows(problems), start, stop)
        while window := list(islice(rows, WINDOW)):
            problems.stop_if_any()
            records = [record for _, record in window if record is not None]
            options = self.source.options.weighing
            explained_records = iter(explain_records(self.engine, records, options, label=self.source.label))
            for row, record in window:
                if record is None:
                    yield ExplainedRow(line=row.line, values=row.values)
                    continue
                prediction, explained = next(explained_records)
                yield ExplainedRow(
                    line=row.line,
                    values=row.values,
                    texts=tuple(record.texts),
                    prediction=next(iter(self.engine.fine_tuned.cells(prediction).values())),
                    explanations=tuple(explained),
                )

    def windows(
        self, tally: Mapping[str, int], start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield (text, tally) for each window of the rows from `start` to `stop` after those of `tally`."""
        read = tally.get("read", start)
        explained = self.explain_rows(read, stop)
        while window := list(islice(explained, WINDOW)):
            self.before.require_same()
            read += len(window)
            yield "".join(row.as_line() for row in window), {"read": read}


@dataclass(frozen=True, kw_only=True)
class ExplanationWork:
    """The explanation of a range of rows. `facts`: those of the model and the file that the command has opened."""

    source: ExplanationSource
    facts: Mapping[str, Any]

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths of the model and of the file."""
        return self.source.run, self.source.file

    def __call__(self, rows: RowRange, folder: Path) -> None:
        """Write the explained rows into `folder`, after the last window that a killed task has written."""
        opened = ExplainedRows.open(self.source)
        require_facts(opened.facts, self.facts, str(self.source.file))
        part = RowPart(folder)
        for text, tally in opened.windows(part.tally, rows.start, rows.stop):
            part.append(text, tally)
        opened.before.require_same(whole=True)


def in_one_process(work: UnfinishedOutput, opened: ExplainedRows, count: int, watch: Watch) -> Iterator[ExplainedRow]:
    """Explain the rows that a stopped call has not explained; return all. Raises UserError if the file changed."""
    part = RowPart(work.folder)

    def done() -> int:
        return part.tally.get("read", 0)

    if done():
        watch(Notice(f"going on after {done():,} of {format_count(count, 'row')}"))
    watch(ExplanationProgress(done=done(), count=count))
    with explaining_stops(work, done, format_count(count, "row"), watch):
        for text, tally in opened.windows(part.tally):
            if not (part.tally or work.begun):
                work.begin(opened.facts, count)
            part.append(text, tally)
            watch(ExplanationProgress(done=done(), count=count))
        opened.before.require_rows(done(), count)
        opened.before.require_same(whole=True)
    part.check()
    return _rows_of(part)


def in_tasks(tasks: RowTasks, opened: ExplainedRows, watch: Watch) -> Iterator[ExplainedRow]:
    """Explain all rows in tasks; return them in order. Raises UserError if a part is damaged or not whole."""
    source = replace(opened.source, run=opened.source.run.absolute(), file=opened.source.file.absolute())

    def windows() -> Iterator[list[Any]]:
        rows = opened.inputs.rows(opened.before.problems())
        while window := list(islice(rows, WINDOW)):
            yield window

    def report(done: int, count: int) -> None:
        watch(ExplanationProgress(done=done, count=count))

    return _join_parts(tasks.run(ExplanationWork(source=source, facts=opened.facts), windows, report))


def _join_parts(parts: Iterable[tuple[RowRange, Path]]) -> Iterator[ExplainedRow]:
    for rows, folder in parts:
        part = RowPart(folder)
        require_whole(rows, part.tally.get("read"), folder)
        yield from _rows_of(part)


def _rows_of(part: RowPart) -> Iterator[ExplainedRow]:
    with part.path.open(encoding="utf-8") as file:
        yield from map(ExplainedRow.of_line, file)
