"""Explains the predictions for the rows of a file: the strongest words of each row, and of each label."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.analysis.settings import AttributionOptions
from osbert.analysis.word_totals import WordTotals, trust, word_sections
from osbert.errors import Problems, UserError
from osbert.files import as_json, refuse_foreign, writing_output
from osbert.interop.folder import open_folder
from osbert.interop.hub import display_name
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.data_file import DataFile
from osbert.reading.table import Row
from osbert.remote.addresses import display_path
from osbert.remote.cache import with_addresses
from osbert.reports.page import write_report
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.file_options import FileTaskOptions
from osbert.runs.json_lines import plain
from osbert.runs.rows.contract import READ, ROWS, RowJob, RowProgress, RowSink
from osbert.runs.rows.forms.contract import free_names
from osbert.runs.rows.machine import RowMachine, open_workspace
from osbert.runs.rows.tasks import row_plan
from osbert.runs.rows.texts import local_files
from osbert.tasks import Inputs, Record
from osbert.tasks.tables import note_long
from osbert.terminal import format_count

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
                note_long(self.engine.fine_tuned, [record], self.engine.packer, problems)
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


STRONGEST = 5
EXAMPLES = 5
"""Number of examples for a label in the report, those with the highest scores."""
FILES = ("rows.csv", "words.json", "report.html")


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
    run: Path, file: Path, *, out: Path, label: str = "", options: ExplanationKeywords, watch: Watch = ignore
) -> ExplanationTally:
    """Explain the prediction for every row of a file, into a folder.

    rows.csv: one line for each explanation, with the explained prediction and the five words of the largest weights.
    words.json and report.html: the strongest words of each label, with counts, intervals and examples. `label`: explain
    the score of this label instead of the predicted one. Raises UserError that lists all unusable rows before anything
    is computed, and if the folder holds other files. A stopped call keeps its explanations in OUT.unfinished, and the
    same call resumes it.
    """
    options.weighing.require_possible()
    plan = row_plan(options.file, is_kept=True)
    with local_files(file, out) as (local, local_out):
        refuse_foreign(local_out, "explanations", FILES)
        with open_workspace(local_out, "explanations that were begun") as (folder, work):
            assert work is not None  # of a path
            source = ExplanationSource(run=run, file=local, label=label, options=options)
            job = source.open()
            report_remarks(job.engine, watch)
            watch(Notice(job.rows.describe))
            tasks_source = replace(source, run=run.absolute(), file=local.absolute())
            grown = RowMachine(job=job, folder=folder, work=work, watch=watch).run(tasks_source, plan)
            work.out.mkdir(exist_ok=True)
            explained_rows = read_explained_rows(grown.path(ROWS))
            tally = _FileExplanation(job=job, count=grown.tally[READ]).write(work.out, out, explained_rows)
            work.end()
    return tally


@dataclass(kw_only=True)
class _FileExplanation:
    """Explains the `count` rows of a file and collects the words of each label."""

    job: ExplanationJob
    count: int
    totals: WordTotals = field(default_factory=WordTotals)
    examples: dict[str, list[tuple[Explanation, tuple[str, ...], int]]] = field(default_factory=dict)

    def write(self, folder: Path, out: Path, explained_rows: Iterable[ExplainedRow]) -> ExplanationTally:
        """Write the three files to a folder; `out` is its name in messages."""
        columns = self.job.rows.columns
        words = [f"{what} {number}" for number in range(1, STRONGEST + 1) for what in ("word", "weight")]
        cell_names = ("prediction", "explained", "score", "completeness error", "agreement", "truncated", *words)
        names = dict(zip(cell_names, free_names(cell_names, columns), strict=True))
        rows = empty = explanations = 0
        with (
            writing_output(folder / FILES[0]) as aside,
            aside.open("w", encoding="utf-8", newline="", errors="backslashreplace") as stream,
        ):
            table = csv.DictWriter(stream, [*columns, *names.values()], extrasaction="ignore")
            table.writeheader()
            for row in explained_rows:
                rows += 1
                cells = [{"prediction": row.prediction, **_cells(explanation)} for explanation in row.explanations]
                for explanation in row.explanations:
                    self._note(explanation, row.texts, row.line)
                empty += not cells
                explanations += len(cells)
                # A row without text still gets its line, with empty cells.
                for row_cells in cells or [{}]:
                    table.writerow({**row.values, **{names[name]: cell for name, cell in row_cells.items()}})
        totals = self._words()
        with writing_output(folder / FILES[1]) as aside:
            aside.write_text(as_json(plain(totals)), encoding="utf-8", errors="backslashreplace")
        self._report(folder / FILES[2])
        return ExplanationTally(folder=out, rows=rows, empty=empty, explanations=explanations, words=totals["labels"])

    def _note(self, explanation: Explanation, texts: tuple[str, ...], line: int) -> None:
        self.totals.add(explanation, texts, line)
        examples = self.examples.setdefault(explanation.label, [])
        examples.append((explanation, texts, line))
        # At most EXAMPLES + 1 items: the ones with the highest scores so far, and the new one.
        examples.sort(key=lambda example: -example[0].score)
        del examples[EXAMPLES:]

    def _words(self) -> dict[str, Any]:
        """Return the content of words.json."""
        labels = {
            label: {
                "explanations": count,
                "for": self.totals.strongest(label),
                "against": self.totals.strongest(label, against=True),
            }
            for label, count in self.totals.counts.items()
        }
        return {
            "settings": asdict(self.job.source.options.weighing),
            "trust": dict(trust(self.totals)),
            "labels": labels,
        }

    def _report(self, path: Path) -> None:
        examples = [example for label_examples in self.examples.values() for example in label_examples]
        described = with_addresses(self.job.rows.describe)
        lead = f"Which words decide, over {format_count(self.count, 'row')}: {described}"
        write_report(
            path, f"Why {display_name(self.job.source.run)} says so", word_sections(self.totals, examples), lead=lead
        )


def _cells(explanation: Explanation) -> dict[str, Any]:
    cells: dict[str, Any] = {"explained": explanation.text or explanation.label, "score": f"{explanation.score:.4f}"}
    cells["completeness error"] = "" if explanation.error is None else f"{explanation.error:.4f}"
    cells["agreement"] = "" if explanation.agreement is None else f"{explanation.agreement:.3f}"
    cells["truncated"] = explanation.truncated
    for number, word in enumerate(explanation.strongest(STRONGEST), 1):
        cells |= {f"word {number}": word.word, f"weight {number}": f"{word.weight:.4f}"}
    return cells
