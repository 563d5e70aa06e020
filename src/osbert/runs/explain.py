"""Explains the predictions for the rows of a file: the strongest words of each row, and of each label."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.analysis.settings import AttributionOptions
from osbert.analysis.word_sections import trust, word_sections
from osbert.analysis.word_totals import WordTotals
from osbert.errors import Problems, UserError
from osbert.files import as_json, refuse_foreign, writing_output
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reports.page import write_report
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.file_options import FileOptions
from osbert.runs.json_lines import plain
from osbert.runs.predict.forms.contract import free_names
from osbert.tasks import Inputs, Record
from osbert.terminal import counted

if TYPE_CHECKING:
    from osbert.analysis.explanation import Explanation
    from osbert.inference.engine import Engine
    from osbert.reading.table import Row

WINDOW = 16
"""Rows that are explained together."""
STRONGEST = 5
EXAMPLES = 5
"""Number of examples for a label in the report, those with the highest scores."""
FILES = ("rows.csv", "words.json", "report.html")


@dataclass(frozen=True, kw_only=True)
class ExplanationProgress:
    """Event: `done` of `count` rows are explained."""

    done: int
    count: int


@dataclass(frozen=True, kw_only=True)
class ExplanationTally:
    """The result in a folder: the numbers of rows and explanations, and for each label its strongest `words`."""

    folder: Path
    rows: int
    empty: int
    explanations: int
    words: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ExplanationKeywords:
    """The keywords of `osbert.explain`: the method, how the file is read, how the folder is opened."""

    weighing: AttributionOptions = field(default_factory=AttributionOptions)
    file: FileOptions = field(default_factory=FileOptions)
    opening: Opening = CAREFUL


def explain_file(
    run: Path, file: Path, *, out: Path, label: str = "", options: ExplanationKeywords, watch: Watch = ignore
) -> ExplanationTally:
    """Explain the prediction for every row of a file, into a folder.

    rows.csv: one line for each explanation, with the explained prediction and the five words of the largest weights.
    words.json and report.html: the strongest words of each label, with counts, intervals and examples. `label`: explain
    the score of this label instead of the predicted one. Raises UserError that lists all unusable rows before anything
    is computed, and if the folder holds other files.
    """
    from osbert.inference.engine import load  # torch takes seconds to import

    options.weighing.require_possible()
    refuse_foreign(out, "explanations", FILES)
    engine = load(run, opening=options.opening)
    report_remarks(engine, watch)
    task = engine.fine_tuned.source.moved(file, options.file.given(engine.fine_tuned))
    inputs = task.source.inputs(file)
    watch(Notice(inputs.describe))
    problems = Problems(heading=f"{file} cannot be used")
    count = 0
    # First pass: check every row. `_rows` reads the file a second time.
    for _, record in inputs.rows(problems):
        count += 1
        if record is not None:
            engine.fine_tuned.refuse_long([record], engine.packer, problems)
    problems.stop_if_any()
    if not count:
        raise UserError(f"{file} has no rows to explain.", code="no-data")
    with claim(out) as folder:
        folder.mkdir(exist_ok=True)
        work = _FileExplanation(engine=engine, inputs=inputs, count=count, label=label, options=options.weighing)
        return work.write(folder, out, watch)


@dataclass(kw_only=True)
class _FileExplanation:
    """Explains the `count` rows of a file and collects the words of each label."""

    engine: Engine
    inputs: Inputs
    count: int
    label: str
    options: AttributionOptions
    totals: WordTotals = field(default_factory=WordTotals)
    examples: dict[str, list[tuple[Explanation, tuple[str, ...], int]]] = field(default_factory=dict)

    def write(self, folder: Path, out: Path, watch: Watch) -> ExplanationTally:
        """Write the three files to a folder; `out` is its name in messages."""
        words = [f"{what} {number}" for number in range(1, STRONGEST + 1) for what in ("word", "weight")]
        own = ("prediction", "explained", "score", "completeness error", "agreement", *words)
        names = dict(zip(own, free_names(own, self.inputs.columns), strict=True))
        rows = empty = explanations = 0
        with (
            writing_output(folder / FILES[0]) as aside,
            aside.open("w", encoding="utf-8", newline="", errors="backslashreplace") as stream,
        ):
            table = csv.DictWriter(stream, [*self.inputs.columns, *names.values()], extrasaction="ignore")
            table.writeheader()
            for row, cells in self._rows():
                rows += 1
                empty += not cells
                explanations += len(cells)
                # A row without text still gets its line, with empty cells.
                for one in cells or [{}]:
                    table.writerow({**row.values, **{names[name]: cell for name, cell in one.items()}})
                watch(ExplanationProgress(done=rows, count=self.count))
        found = self._words()
        with writing_output(folder / FILES[1]) as aside:
            aside.write_text(as_json(plain(found)), encoding="utf-8", errors="backslashreplace")
        self._report(folder / FILES[2])
        return ExplanationTally(folder=out, rows=rows, empty=empty, explanations=explanations, words=found["labels"])

    def _rows(self) -> Iterator[tuple[Row, list[dict[str, Any]]]]:
        """Yield each row with the cells of its explanations, none for a row without text."""
        from osbert.inference.explain import explain_records

        problems = Problems(heading="The file has changed")
        rows = self.inputs.rows(problems)
        while window := list(islice(rows, WINDOW)):
            problems.stop_if_any()
            records = [record for _, record in window if record is not None]
            said = iter(explain_records(self.engine, records, self.options, label=self.label))
            for row, record in window:
                if record is None:
                    yield row, []
                    continue
                prediction, explained = next(said)
                for one in explained:
                    self._note(one, record, row.line)
                yield row, [{"prediction": prediction.value, **_cells(one)} for one in explained]

    def _note(self, one: Explanation, record: Record, line: int) -> None:
        self.totals.add(one, record.texts, line)
        kept = self.examples.setdefault(one.label, [])
        kept.append((one, record.texts, line))
        # At most EXAMPLES + 1 items: the ones with the highest scores so far, and the new one.
        kept.sort(key=lambda example: -example[0].score)
        del kept[EXAMPLES:]

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
        return {"settings": asdict(self.options), "trust": dict(trust(self.totals)), "labels": labels}

    def _report(self, path: Path) -> None:
        examples = [one for own in self.examples.values() for one in own]
        lead = f"Which words decide, over {counted(self.count, 'row')}: {self.inputs.describe}"
        write_report(path, f"Why {self.engine.folder.name} says so", word_sections(self.totals, examples), lead=lead)


def _cells(one: Explanation) -> dict[str, Any]:
    cells = {"explained": one.text or one.label, "score": f"{one.score:.4f}"}
    cells["completeness error"] = "" if one.error is None else f"{one.error:.4f}"
    cells["agreement"] = "" if one.agreement is None else f"{one.agreement:.3f}"
    for number, word in enumerate(one.strongest(STRONGEST), 1):
        cells |= {f"word {number}": word.word, f"weight {number}": f"{word.weight:.4f}"}
    return cells
