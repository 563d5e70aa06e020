"""Explains the predictions for the rows of a file: the strongest words of each row, and of each label."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.analysis.word_sections import trust, word_sections
from osbert.analysis.word_totals import WordTotals
from osbert.files import as_json, disk_needed, refuse_foreign, writing_output
from osbert.interop.hub import display_name
from osbert.lock import claim
from osbert.remote.addresses import display_path, local_copy, local_output
from osbert.remote.cache import reading_copies, with_addresses
from osbert.reports.page import write_report
from osbert.runs.contract import Notice, Watch, ignore, report_remarks
from osbert.runs.explain_rows import (
    ExplainedRow,
    ExplainedRows,
    ExplanationKeywords,
    ExplanationSource,
    in_one_process,
    in_tasks,
)
from osbert.runs.json_lines import plain
from osbert.runs.predict.forms.contract import free_names
from osbert.runs.row_tasks import RowTasks, row_plan
from osbert.runs.unfinished import open_unfinished_output
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.analysis.explanation import Explanation

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
    with reading_copies(), local_output(out, inputs=[file]) as local_out:
        tally = _explain(run, local_copy(file), out=local_out, label=label, options=options, watch=watch)
    return replace(tally, folder=out)


def _explain(
    run: Path, file: Path, *, out: Path, label: str, options: ExplanationKeywords, watch: Watch
) -> ExplanationTally:
    """Explain the rows of a local file into a local folder."""
    plan = row_plan(options.file, is_kept=True)
    refuse_foreign(out, "explanations", FILES)
    with ExitStack() as held:
        held.enter_context(disk_needed(out, goes_on="after the last window"))
        folder = held.enter_context(claim(out))
        work = held.enter_context(open_unfinished_output(folder, "explanations that were begun"))
        rows = ExplainedRows.open(ExplanationSource(run=run, file=file, label=label, options=options))
        report_remarks(rows.engine, watch)
        watch(Notice(rows.inputs.describe))
        if before := work.begun:
            work.refuse_other(before["facts"], rows.facts)
        count = int(before["count"]) if before else rows.check()
        if plan is None:
            explained_rows = in_one_process(work, rows, count, watch)
        else:
            work.begin(rows.facts, count)
            explained_rows = in_tasks(RowTasks(plan=plan, folder=work.folder), rows, watch)
        folder.mkdir(exist_ok=True)
        written = _FileExplanation(rows=rows, count=count).write(folder, out, explained_rows)
        work.end()
        return written


@dataclass(kw_only=True)
class _FileExplanation:
    """Explains the `count` rows of a file and collects the words of each label."""

    rows: ExplainedRows
    count: int
    totals: WordTotals = field(default_factory=WordTotals)
    examples: dict[str, list[tuple[Explanation, tuple[str, ...], int]]] = field(default_factory=dict)

    def write(self, folder: Path, out: Path, explained_rows: Iterable[ExplainedRow]) -> ExplanationTally:
        """Write the three files to a folder; `out` is its name in messages."""
        columns = self.rows.inputs.columns
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
            "settings": asdict(self.rows.source.options.weighing),
            "trust": dict(trust(self.totals)),
            "labels": labels,
        }

    def _report(self, path: Path) -> None:
        examples = [example for label_examples in self.examples.values() for example in label_examples]
        described = with_addresses(self.rows.inputs.describe)
        lead = f"Which words decide, over {format_count(self.count, 'row')}: {described}"
        write_report(
            path, f"Why {display_name(self.rows.source.run)} says so", word_sections(self.totals, examples), lead=lead
        )


def _cells(explanation: Explanation) -> dict[str, Any]:
    cells: dict[str, Any] = {"explained": explanation.text or explanation.label, "score": f"{explanation.score:.4f}"}
    cells["completeness error"] = "" if explanation.error is None else f"{explanation.error:.4f}"
    cells["agreement"] = "" if explanation.agreement is None else f"{explanation.agreement:.3f}"
    cells["truncated"] = explanation.truncated
    for number, word in enumerate(explanation.strongest(STRONGEST), 1):
        cells |= {f"word {number}": word.word, f"weight {number}": f"{word.weight:.4f}"}
    return cells
