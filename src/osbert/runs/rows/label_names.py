"""Predicts classes by name for every row of a file: the rows of `predict`, with a LabelPredictor as their engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from osbert.errors import Problems, UserError, nearest
from osbert.inference.engine import Engine
from osbert.inference.label_predictor import SAMPLE, LabelPredictor, candidate_record
from osbert.inference.label_settings import LabelNames, LabelOptions, list_names, name_problems, split_names
from osbert.reading.table import Row
from osbert.runs.rows.predict import CHARACTERS, PredictionJob, PredictionSource
from osbert.runs.rows.table import Results
from osbert.tasks import Record
from osbert.tasks.tables.classes import parse_list
from osbert.terminal import one_line

SEQUENCES = 2048
"""About the most sequences in a window of rows."""
KEPT = 64
"""Number of probabilities that count as a sequence there, as all of a window are in memory: 2,000 of a text as 31."""


@dataclass(frozen=True, kw_only=True)
class LabelNamesSource(PredictionSource):
    """A call that predicts classes by name for the rows of a file."""

    labels: LabelNames
    naming: LabelOptions

    def load_model(self, device: str = "auto", *, resumable: bool = True) -> tuple[Any, str]:
        engine, weights = super().load_model(device, resumable=resumable)
        assert isinstance(engine, Engine)
        predictor = LabelPredictor(engine, self.labels, self.naming)
        if self.naming.labels_column:  # rows differ in their labels: no column has the probabilities of one
            predictor.ask_rows()
        return predictor, weights

    def open(self) -> LabelNamesJob:
        """Open the model and the file. Raises UserError, as if the model can tell no classes by name."""
        job = super().open()
        column = self.naming.labels_column
        if column and column not in job.inputs.columns:
            raise UserError(
                f"{self.name} has no column '{one_line(column)}' (--labels-column); it has "
                f"{one_line(', '.join(job.inputs.columns))}.{nearest(column, job.inputs.columns)}",
                code="unknown-column",
            )
        label_facts = json.loads(json.dumps({"labels": self.labels, "naming": asdict(self.naming) | {"labels": ""}}))
        return LabelNamesJob(**(vars(job) | {"facts": {**job.facts, **label_facts}, "column": column}))


@dataclass(frozen=True, kw_only=True)
class LabelNamesJob(PredictionJob):
    """The rows of a file with the classes that are asked for; `column`: that of rows' own labels, "" for none."""

    engine: Any
    column: str
    cell_labels: dict[str, LabelNames] = field(default_factory=dict)
    """The labels in each cell that was read, so that equal cells have the same ones."""

    @property
    def window_size(self) -> tuple[int, int]:
        return SEQUENCES, CHARACTERS

    def sizes(self, row: tuple[Row, Record | None]) -> tuple[int, int]:
        if (record := row[1]) is None:
            return super().sizes(row)
        candidates = getattr(record, "candidates", None) or self.engine.labels
        return self.engine.scorer.passes(candidates) + len(candidates) // KEPT, super().sizes(row)[1]

    def read(self, problems: Problems) -> Iterator[tuple[Row, Record | None]]:
        for row, record in super().read(problems):
            if record is None or not self.column:
                yield row, record
                continue
            cell = row.values.get(self.column, "").strip()
            if cell and cell not in self.cell_labels:
                self._read_cell(cell, record, problems)
            if cell:
                if names := self.cell_labels.get(cell):
                    yield row, candidate_record(record, names)
            elif self.engine.labels:
                yield row, record
            else:
                message = f"{record.place}: the column '{one_line(self.column)}' is empty."
                problems.add(f"{message} Write labels, or give --labels for such rows.", code="missing-label")

    def _read_cell(self, cell: str, record: Record, problems: Problems) -> None:
        """Keep the labels in a row's cell; add those that cannot be to `problems`."""
        listed = parse_list(cell) if cell.startswith("[") else None
        where = f"{record.place}: '{one_line(self.column)}'"
        try:
            names = split_names(cell) if listed is None else list_names(map(str, listed))
        except UserError as error:
            problems.add(f"{where}: {error}", code=error.code)
            return
        before = problems.count
        for message, code in name_problems(names):
            problems.add(f"{where}: {message}", code=code)
        self.engine.check(names, where, problems)
        if problems.count == before:
            if len(self.cell_labels) >= SEQUENCES:
                self.cell_labels.clear()  # each row may have others
            self.cell_labels[cell] = names

    def results(self, window: Sequence[tuple[Row, Record | None]], tally: Mapping[str, int]) -> Results:
        if self.engine.calibrates:
            first = (record for _, record in self.read(self.before.problems()) if record is not None)
            self.engine.calibrate([*islice(first, SAMPLE)])
        return super().results(window, tally)


def label_source(naming: LabelOptions) -> Callable[..., LabelNamesSource]:
    """Return what makes the source of `predict_file` for classes by name. Raises UserError for names that cannot be."""
    return partial(LabelNamesSource, labels=naming.names(), naming=naming)
