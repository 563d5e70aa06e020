"""Training rows behind a prediction: the nearest ones, and those that raised or lowered its score most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from osbert.errors import UserError
from osbert.evaluation.score import refuse_long, require_labels
from osbert.interop.opening import CAREFUL, Opening
from osbert.reading.memory import Data, tables
from osbert.runs.contract import Notice, Watch, WorkProgress, ignore, report_remarks
from osbert.runs.file_options import FileOptions
from osbert.tasks import Record, Task, load
from osbert.terminal import format_count

if TYPE_CHECKING:
    from osbert.inference.engine import Engine
    from osbert_lab.influence.influence import Influence, RowInfluence

WINDOW = 256
"""Rows that are read together, so that memory does not grow with the file."""


@dataclass(frozen=True, kw_only=True)
class TrainingRow:
    """A training row beside a prediction.

    `place`: its file and line. `cosine`: of the states below the last layer. `pull`: how far a gradient step of size 1
    on this row, by the last layer alone, raises the score; below 0 it lowers it.
    """

    place: str
    texts: tuple[str, ...]
    label: str
    cosine: float
    pull: float


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """The training rows behind one score.

    `label`, `text`: what the score is of. `rows`: how many were compared. `nearest`: by cosine, the nearest first;
    `towards`: by pull, the strongest first; `against`: those that pulled the other way.
    """

    label: str
    text: str
    rows: int
    nearest: tuple[TrainingRow, ...] = ()
    towards: tuple[TrainingRow, ...] = ()
    against: tuple[TrainingRow, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the rows as lines of text."""
        about = f"{self.label} ({self.text})" if self.text else self.label
        yield f"{about}: of {format_count(self.rows, 'training row')}"
        for title, rows in (("nearest", self.nearest), ("pulled towards", self.towards), ("against", self.against)):
            yield f"  {title}"
            for row in rows:
                text = " | ".join(row.texts)
                yield f"    cosine {row.cosine:.3f}  pull {row.pull:+.3f}  {row.label}  {row.place}: {text}"


def training_rows(
    run: Path,
    texts: Sequence[str],
    *,
    rows: Data,
    label: str = "",
    count: int = 5,
    options: FileOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> list[TrainingRows]:
    """Compare labelled rows with what a fine-tuned run says of texts that it reads together; one result for each score.

    `rows`: a file, or rows in memory. `label`: take its score instead of the predicted one. Raises UserError, before
    anything is computed, at rows without a label or with an unknown one, and if the run's kind has no such comparison.
    """
    from osbert.inference.engine import load as load_engine  # torch takes seconds to import
    from osbert_lab.influence.influence import Influence, require_last_layer

    if count < 1:
        raise UserError(f"count must be 1 or more, not {count}.", code="invalid-value")
    engine = load_engine(run, opening=opening)
    report_remarks(engine, watch)
    task = engine.fine_tuned
    require_last_layer(engine.learner.heads[task.name])
    given = Path(rows) if isinstance(rows, str | Path) else tables(rows)
    other = task.source.switch_data(given, (options or FileOptions()).as_settings(task))
    other, records_by_split = load(other, ("all",), fit=False)
    require_labels(records_by_split["all"])
    watch(Notice(f"{format_count(len(records_by_split['all']), 'row')} to compare with"))
    record = task.record_of(texts)
    refuse_long(task, [record], engine.packer)
    examples = task.encode(record, engine.packer)
    (prediction,) = engine.predict_encoded([(record, examples)])
    scores = task.explain(prediction, record, examples, label)
    influence = Influence(engine.learner, task.name, examples, [score.weights for score in scores])
    # One result per score; each keeps only the best rows so far, so memory does not grow with the file.
    best = [TrainingRows(label=score.label, text=score.text, rows=len(records_by_split["all"])) for score in scores]
    done = 0
    records = iter(records_by_split["all"])
    while window := list(islice(records, WINDOW)):
        compared = _compare_records(engine, influence, window)
        for number, known in enumerate(best):
            best[number] = _merge_rows(known, [_row(task, *row_influence, number) for row_influence in compared], count)
        done += len(window)
        watch(WorkProgress(of="training-row", done=done, count=len(records_by_split["all"])))
    return best


def _merge_rows(best: TrainingRows, rows: Sequence[TrainingRow], count: int) -> TrainingRows:
    """Merge new rows into the best ones so far; keep the first `count` in each of the three orders."""
    pulling = [row for row in rows if row.pull > 0], [row for row in rows if row.pull < 0]
    return replace(
        best,
        nearest=tuple(nlargest(count, [*best.nearest, *rows], key=lambda row: row.cosine)),
        towards=tuple(nlargest(count, [*best.towards, *pulling[0]], key=lambda row: row.pull)),
        against=tuple(nlargest(count, [*best.against, *pulling[1]], key=lambda row: -row.pull)),
    )


def _row(task: Task, record: Record, influence: RowInfluence, number: int) -> TrainingRow:
    # Five digits: the others depend on the batch and the processor. So equal rows mostly keep the order of the file.
    return TrainingRow(
        place=record.place,
        texts=record.texts,
        label=", ".join(task.names(record)) or str(record.label),
        cosine=round(influence.cosine, 5),
        pull=float(f"{influence.pulls[number]:.5g}"),
    )


def _compare_records(
    engine: Engine, influence: Influence, records: Sequence[Record]
) -> list[tuple[Record, RowInfluence]]:
    from osbert.data.batch import micro_batches
    from osbert.evaluation.forward import TOKENS

    task = engine.fine_tuned
    groups = [task.encode(record, engine.packer) for record in records]
    # A row may have several examples (chunks of a long text): `record` says which row they belong to.
    examples = [replace(example, record=index) for index, group in enumerate(groups) for example in group]
    influences: dict[int, RowInfluence] = {}
    for batch in micro_batches(examples, TOKENS, together=task.batching != "sequences"):
        for index, influenced in influence.of(batch).items():
            influences[index] = influenced
    return [(record, influences[index]) for index, record in enumerate(records)]
