"""The rows of a file with the explanations of their predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.analysis.settings import AttributionOptions
from osbert.errors import Problems, UserError
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.data_file import DataFile
from osbert.reading.table import Row
from osbert.runs.contract import Watch
from osbert.runs.rows.contract import ROWS, RowJob, RowProgress, RowSink
from osbert.runs.rows.options import FileTaskOptions
from osbert.tasks import Inputs, Record

if TYPE_CHECKING:
    from osbert.analysis.explanation import Explanation
    from osbert.inference.engine import Engine

WINDOW = 16
"""Rows that are explained together."""


class ExplanationProgress(RowProgress):
    """Event: `done` of `count` rows are explained."""


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

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The paths of the model and of the file."""
        return self.run, self.file

    @property
    def name(self) -> str:
        """What messages call the file."""
        return str(self.file)

    def open(self) -> ExplanationJob:
        """Open the model and the file. Raises UserError."""
        from osbert.inference.engine import load  # torch takes seconds to import

        folder = open_folder(self.run, self.options.opening)
        weights = folder.fingerprint  # before `load`, which frees the memory of the weights
        engine = load(folder)
        task = engine.fine_tuned.source.switch_data(self.file, self.options.file.as_settings(engine.fine_tuned))
        inputs = task.source.inputs(self.file)
        before = inputs.table.file if inputs.table else DataFile(self.file)
        facts = {
            "input": before.sha256,
            "weights": weights,
            "label": self.label,
            "method": asdict(self.options.weighing),
            "columns": inputs.describe.partition(": ")[2],  # without the name of the file, which may move
        }
        return ExplanationJob(source=self, engine=engine, rows=inputs, before=before, facts=facts)


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
class ExplanationJob(RowJob):
    """The rows of a file, with the model whose predictions are explained; an explained row is a line of JSON."""

    progress = ExplanationProgress

    source: ExplanationSource
    engine: Engine
    rows: Inputs
    before: DataFile
    facts: Mapping[str, Any]

    def check(self, watch: Watch) -> int:
        """Read the whole file and return its number of rows. Raises UserError that lists all unusable ones."""
        problems = Problems(heading=f"{self.source.file} cannot be used")
        count = 0
        for _, record in self.rows.rows(problems):
            count += 1
            if record is not None:
                self.engine.fine_tuned.refuse_long([record], self.engine.packer, problems)
        problems.stop_if_any()
        if not count:
            raise UserError(f"{self.source.file} has no rows to explain.", code="no-data")
        return count

    def windows(self, start: int = 0, stop: int | None = None) -> Iterator[list[tuple[Row, Record | None]]]:
        """Yield the rows with their records, so many at a time."""
        problems = self.before.problems()
        rows = islice(self.rows.rows(problems), start, stop)
        while window := list(islice(rows, WINDOW)):
            problems.stop_if_any()
            yield window
        problems.stop_if_any()

    def compute(
        self, window: Sequence[tuple[Row, Record | None]], sink: RowSink
    ) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the explained rows as lines of JSON."""
        from osbert.inference.explain import explain_records

        records = [record for _, record in window if record is not None]
        options = self.source.options.weighing
        explained_records = iter(explain_records(self.engine, records, options, label=self.source.label))
        lines = []
        for row, record in window:
            explained_row = ExplainedRow(line=row.line, values=row.values)
            if record is not None:
                prediction, explained = next(explained_records)
                explained_row = replace(
                    explained_row,
                    texts=tuple(record.texts),
                    prediction=next(iter(self.engine.fine_tuned.cells(prediction).values())),
                    explanations=tuple(explained),
                )
            lines.append(explained_row.as_line())
        return {ROWS: "".join(lines).encode()}, {}


def read_explained_rows(path: Path) -> Iterator[ExplainedRow]:
    """Yield the rows that a job has written."""
    with path.open(encoding="utf-8") as file:
        yield from map(ExplainedRow.of_line, file)
