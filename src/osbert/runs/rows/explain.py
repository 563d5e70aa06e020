"""Explains the predictions for the rows of a file: the strongest words of each row, and of each label."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from osbert.analysis.settings import AttributionOptions
from osbert.analysis.word_totals import WordTotals, trust, word_sections
from osbert.errors import Problems, UserError
from osbert.files import as_json, refuse_foreign, writing_output
from osbert.interop.hub import display_name
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.data_file import DataFile
from osbert.reading.table import Row
from osbert.remote import display_path, with_addresses
from osbert.reports.page import write_report
from osbert.runs.contract import Watch, ignore
from osbert.runs.file_options import FileOptions
from osbert.runs.json_lines import plain
from osbert.runs.rows.contract import READ, ROWS, Appended, RowJob, RowSink, RowSource
from osbert.runs.rows.forms.contract import RowLayout, RowResult, ValueResult
from osbert.runs.rows.forms.csv import ROW_END, CsvTable
from osbert.runs.rows.machine import open_machine
from osbert.runs.rows.table import write_form
from osbert.tasks import Inputs, Record
from osbert.tasks.tables import note_long
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.analysis.explanation import Explanation
    from osbert.inference.engine import Engine

FILES = ("rows.csv", "words.json", "report.html")
"""The files of a folder of explanations."""
WINDOW = 16
"""Rows that are explained together."""


@dataclass(frozen=True, kw_only=True)
class ExplanationSource(RowSource["ExplanationJob"]):
    """A call that explains the predictions for the rows of a file.

    `label`: explain its score, "" for that of the prediction.
    """

    work_name = "explanations that were begun"

    reading: FileOptions
    label: str
    weighing: AttributionOptions

    def with_paths(self, file: Path, out: Path | None) -> Self:
        """Return the source with a local file. Raises UserError if the folder `out` holds other files."""
        if out:
            refuse_foreign(out, "explanations", FILES)
        return super().with_paths(file, out)

    def open(self) -> ExplanationJob:
        engine, weights = self.load_model()
        task = engine.fine_tuned.source.switch_data(self.file, self.reading.as_settings(engine.fine_tuned))
        inputs = task.source.inputs(self.file)
        before = inputs.table.file if inputs.table else DataFile(self.file)
        facts = {
            "input": before.sha256,
            "weights": weights,
            "label": self.label,
            "method": asdict(self.weighing),
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

    work = "explanation"

    source: ExplanationSource
    engine: Engine
    rows: Inputs

    @property
    def window_size(self) -> tuple[int, int]:
        return WINDOW, 1

    @property
    def description(self) -> str:
        return self.rows.describe

    def check(self, watch: Watch) -> int:
        problems = Problems(heading=f"{self.source.file} cannot be used")
        count = 0
        for _, record in self.rows.rows(problems):
            count += 1
            if record is not None:
                note_long(self.engine.fine_tuned, [record], self.engine.packer, problems)
        problems.stop_if_any()
        if not count:
            raise UserError(f"{self.source.file} has no rows to explain.", code="no-data")
        return count

    def read(self, problems: Problems) -> Iterator[tuple[Row, Record | None]]:
        return iter(self.rows.rows(problems))

    def compute(self, window: Sequence[tuple[Row, Record | None]], sink: RowSink) -> Appended:
        from osbert.inference.explain import explain_records

        records = [record for _, record in window if record is not None]
        options = self.source.weighing
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


STRONGEST = 5
EXAMPLES = 5
"""Number of examples for a label in the report, those with the highest scores."""


@dataclass(frozen=True, kw_only=True)
class ExplanationTally:
    """The result in a folder: the numbers of rows and explanations, and for each label its strongest `words`."""

    folder: Path
    rows: int
    empty: int
    explanations: int
    words: Mapping[str, Any]

    def describe(self) -> str:
        """Return the counts and the path of the report."""
        report = display_path(self.folder / FILES[2])
        return f"{format_count(self.explanations, 'explanation')} of {format_count(self.rows, 'row')} -> {report}"


def explain_file(
    run: Path,
    file: Path,
    *,
    out: Path,
    label: str = "",
    weighing: AttributionOptions | None = None,
    options: FileOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> ExplanationTally:
    """Explain the prediction for every row of a file, into a folder.

    rows.csv: one line for each explanation, with the explained prediction and the five words of the largest weights.
    words.json and report.html: the strongest words of each label, with counts, intervals and examples. `label`: explain
    the score of this label instead of the predicted one. Raises UserError that lists all unusable rows before anything
    is computed, and if the folder holds other files. A stopped call keeps its explanations in OUT.unfinished, and the
    same call resumes it.
    """
    weighing = weighing or AttributionOptions()
    weighing.require_possible()
    source = ExplanationSource(
        model=run, file=file, reading=options or FileOptions(), opening=opening, label=label, weighing=weighing
    )
    with open_machine(source, out, watch) as machine:
        assert machine.work is not None  # of a path
        grown = machine.run()
        machine.work.out.mkdir(exist_ok=True)
        explanation = _FileExplanation(job=machine.job, count=grown.tally[READ])
        with grown.path(ROWS).open(encoding="utf-8") as lines:
            tally = explanation.write(machine.work.out, out, map(ExplainedRow.of_line, lines))
        machine.work.end()
    return tally


@dataclass(kw_only=True)
class _FileExplanation:
    """Explains the `count` rows of a file and collects the words of each label."""

    job: ExplanationJob
    count: int
    empty: int = 0
    totals: WordTotals = field(default_factory=WordTotals)
    examples: dict[str, list[tuple[Explanation, tuple[str, ...], int]]] = field(default_factory=dict)

    def write(self, folder: Path, out: Path, explained_rows: Iterable[ExplainedRow]) -> ExplanationTally:
        """Write the three files to a folder; `out` is its name in messages."""
        words = [f"{what} {number}" for number in range(1, STRONGEST + 1) for what in ("word", "weight")]
        headings = ("prediction", "explained", "score", "completeness error", "agreement", "truncated", *words)
        form = CsvTable(RowLayout(file=folder / FILES[0], columns=self.job.rows.columns, headings=headings))
        form.style = replace(form.style, newline=ROW_END)
        write_form(form, folder / FILES[0], self._results(headings, explained_rows))
        totals: dict[str, Any] = {
            "settings": asdict(self.job.source.weighing),
            "trust": dict(trust(self.totals)),
            "labels": {
                label: {
                    "explanations": count,
                    "for": self.totals.strongest(label),
                    "against": self.totals.strongest(label, against=True),
                }
                for label, count in self.totals.counts.items()
            },
        }
        with writing_output(folder / FILES[1]) as aside:
            aside.write_text(as_json(plain(totals)), encoding="utf-8", errors="backslashreplace")
        examples = [example for label_examples in self.examples.values() for example in label_examples]
        described = with_addresses(self.job.rows.describe)
        lead = f"Which words decide, over {format_count(self.count, 'row')}: {described}"
        title = f"Why {display_name(self.job.source.model)} says so"
        write_report(folder / FILES[2], title, word_sections(self.totals, examples), lead=lead)
        return ExplanationTally(
            folder=out,
            rows=self.count,
            empty=self.empty,
            explanations=sum(self.totals.counts.values()),
            words=totals["labels"],
        )

    def _results(
        self, headings: Sequence[str], explained_rows: Iterable[ExplainedRow]
    ) -> Iterator[tuple[Row, RowResult]]:
        """Yield a result for each explanation, and one without values for a row without text."""
        values: dict[str, Any]
        for row in explained_rows:
            for explanation in row.explanations:
                self._note(explanation, row.texts, row.line)
            self.empty += not row.explanations
            cells = [{"prediction": row.prediction, **_cells(explanation)} for explanation in row.explanations]
            for values in cells or [{}]:
                filled = {name: values.get(name, "") for name in headings}
                yield Row(line=row.line, values=row.values), ValueResult(values=filled)

    def _note(self, explanation: Explanation, texts: tuple[str, ...], line: int) -> None:
        self.totals.add(explanation, texts, line)
        examples = self.examples.setdefault(explanation.label, [])
        examples.append((explanation, texts, line))
        # At most EXAMPLES + 1 items: the ones with the highest scores so far, and the new one.
        examples.sort(key=lambda example: -example[0].score)
        del examples[EXAMPLES:]


def _cells(explanation: Explanation) -> dict[str, Any]:
    cells: dict[str, Any] = {"explained": explanation.text or explanation.label, "score": f"{explanation.score:.4f}"}
    cells["completeness error"] = "" if explanation.error is None else f"{explanation.error:.4f}"
    cells["agreement"] = "" if explanation.agreement is None else f"{explanation.agreement:.3f}"
    cells["truncated"] = explanation.truncated
    for number, word in enumerate(explanation.strongest(STRONGEST), 1):
        cells |= {f"word {number}": word.word, f"weight {number}": f"{word.weight:.4f}"}
    return cells
