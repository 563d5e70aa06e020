"""Evaluates a fine-tuned run on a labelled file, or on a split of a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from osbert.data.pack import Packer
from osbert.errors import UserError, nearest
from osbert.evaluation.bootstrap import score_intervals
from osbert.evaluation.confusion import ConfusionMatrix
from osbert.evaluation.score import class_scores, classes_left_out
from osbert.files import as_json, require_file, writing_output
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.reading.memory import Data, tables
from osbert.reading.splits import USUAL
from osbert.remote import local_data, reading_copies
from osbert.reports.outcomes import TaskResult, result_sections, scores_table, text_lengths
from osbert.reports.page import Section, write_report
from osbert.runs.contract import Notice, Watch, ignore, report_remarks, warn_unknown
from osbert.runs.file_options import LabelledOptions
from osbert.runs.json_lines import plain
from osbert.runs.seen_texts import seen_texts
from osbert.tasks import Prediction, Record, Task, load
from osbert.tasks.calibration import columns, measure_calibration
from osbert.terminal import format_count, in_columns
from osbert.training.run_folder import RunFolder

SCORE_FILES = ("", ".json", ".html")
"""Suffixes of a file of scores; all except .html contain JSON."""


class EvaluationScores(dict[str, float]):
    """The scores of a run by name, as a dict. `confusion`: its confusion matrix; None if the task has no classes."""

    def __init__(self, metrics: Mapping[str, float], confusion: ConfusionMatrix | None = None) -> None:
        super().__init__(metrics)
        self.confusion = confusion


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of a run on labelled data, by name, with the rows and their predictions.

    `limit`: a description of how much of a text is read. `packer`: encodes the run's texts.
    """

    reported: ClassVar[tuple[str, ...]] = ("rows", "metrics", "confusion", "calibration_error", "truncated", "limit")

    task: Task
    records: Sequence[Record]
    predictions: Sequence[Prediction]
    metrics: dict[str, float]
    limit: str = ""
    packer: Packer | None = None

    @property
    def rows(self) -> int:
        """The number of scored rows."""
        return len(self.records)

    @property
    def truncated(self) -> int:
        """The number of truncated texts."""
        return sum(prediction.truncated > 0 for prediction in self.predictions)

    @cached_property
    def confusion(self) -> ConfusionMatrix | None:
        """The confusion matrix; None if the task has no classes."""
        if not self.task.classes:
            return None
        outcomes = map(self.task.outcome, self.predictions, self.records)
        return ConfusionMatrix.of((pair for one in outcomes for pair in one.pairs), self.task.classes)

    @property
    def calibration_error(self) -> float | None:
        """The expected calibration error of the probabilities; None if the task has no probabilities."""
        given = columns(self.predictions, self.records) if self.task.weighed else None
        return measure_calibration(*given) if given else None

    def lines(self) -> Iterator[str]:
        """Yield the scores, the task's own lines (of a classifier the confusion table), and the truncated texts."""
        yield format_count(self.rows, "row")
        left_out = classes_left_out(self.task, self.metrics)
        score_cells = {
            name: f"{value:.4f}" for name, value in self.metrics.items() if not (left_out and name.startswith("f1/"))
        }
        score_cells |= {f"f1/{name}": score for name, score in class_scores(self.task, self.metrics).items()}
        yield from in_columns([("score", "value"), *score_cells.items()])
        if left_out:
            yield f"F1 of {left_out}; --out FILE.json writes all."
        if (error := self.calibration_error) is not None:
            yield f"expected calibration error of the probabilities: {error:.4f}"
        yield from in_columns(self.task.description.details(self.predictions, self.records))
        if cut := self.truncated:
            are = "text is" if cut == 1 else "texts are"
            where = self.task.description.unread
            yield f"{cut:,} {are} longer than the run reads ({self.limit}); pieces {where} were not read."


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """The keywords of `osbert.evaluate`: how the data is read, and how the run's folder is opened."""

    file: LabelledOptions = field(default_factory=LabelledOptions)
    opening: Opening = CAREFUL


def evaluate(
    run: Path,
    *,
    data: Data,
    split: str = "dev",
    out: Path | None = None,
    options: EvaluationOptions | None = None,
    watch: Watch = ignore,
) -> Evaluation:
    """Score the fine-tuned run in the folder `run` on all rows of a file, or on a split of a folder, or rows in memory.

    `out`: the file for the scores, an .html page or one JSON object, written at the end. Raises UserError before any
    computation if the split is missing, and for labels that the run does not know, with file, line and nearest label.
    """
    options = options or EvaluationOptions()
    with reading_copies():
        return _evaluate(run, local_data(data), split=split, out=out, options=options, watch=watch)


def _evaluate(
    run: Path, data: Data, *, split: str, out: Path | None, options: EvaluationOptions, watch: Watch
) -> Evaluation:
    from osbert.inference.engine import load as load_engine  # torch takes seconds to import

    data_path = Path(data) if isinstance(data, str | Path) else None
    if out is not None:
        require_file(out, [data_path] if data_path else [])
        require_score_form(out)
    engine = load_engine(run, opening=options.opening)
    task = engine.fine_tuned
    given = data_path or tables(data)
    # A single file or table has no splits: all of its rows are scored.
    alone = given.is_file() if isinstance(given, Path) else "all" in given
    if alone and split not in USUAL:
        raise UserError(
            f"There is no split '{split}': it is {', '.join(USUAL)}.{nearest(split, USUAL)} All rows of a table count.",
            code="missing-split",
        )
    task = task.source.switch_data(given, options.file.as_settings(task))
    report_remarks(engine, watch)
    # fit=False: the labels of the run stay; unknown ones in the data are errors.
    task, by_split = load(task, ("all" if alone else split,), fit=False)
    (records,) = by_split.values()
    shared = not alone and task.source.is_held_out(split)
    if data_path:
        watch(Notice(origin(data_path, records, shared=shared)))
    for line in task.source.left_out("train" if shared else split):
        watch(Notice(line))
    if seen := seen_texts(str(RunFolder(run).facts.get("finished", {}).get("training_texts", "")), records):
        watch(Notice(seen, warning=True))
    score = engine.evaluate(task, records)
    warn_unknown(sum(prediction.unknown for prediction in score.predictions), watch)
    evaluation = Evaluation(
        task=task,
        records=records,
        predictions=score.predictions,
        metrics=score.metrics,
        limit=task.description.limit(engine.packer),
        packer=engine.packer,
    )
    if out is not None:
        with claim(out) as claimed:
            write_evaluation(claimed, evaluation, name=run.name)
    return evaluation


def require_score_form(out: Path) -> None:
    """Raise UserError if the ending of a file for scores is none of SCORE_FILES."""
    if out.suffix.lower() not in SCORE_FILES:
        raise UserError(
            f"{out}: scores are written as a page, .html, or as JSON, .json: give one as its ending.",
            code="unknown-output-format",
        )


def write_evaluation(path: Path, evaluation: Evaluation, *, name: str) -> None:
    """Write the scores of the run `name`: an .html page, with scores by label and length and examples, else JSON."""
    if path.suffix.lower() != ".html":
        with writing_output(path) as aside:
            aside.write_text(as_json(plain(evaluation)), encoding="utf-8", errors="backslashreplace")
        return
    result = TaskResult(
        task=evaluation.task,
        records=evaluation.records,
        predictions=evaluation.predictions,
        lengths=text_lengths(evaluation.records, evaluation.packer) if evaluation.packer else (),
    )
    scores = scores_table(evaluation.metrics, score_intervals(result.task, result.predictions, result.records))
    sections = [Section(heading="Scores", parts=[scores]), *result_sections(result)]
    write_report(path, f"{name} on {len(evaluation.records):,} rows", sections)


def origin(data: Path, records: Sequence[Record], *, shared: bool) -> str:
    """Describe the files of records, and whether they are held-out training rows."""
    paths = " and ".join(dict.fromkeys(record.path for record in records))
    if not shared:
        return f"rows of {paths}"
    return (
        f"{data} has no file for development: these are the rows of {paths} that a fine-tuning holds out. To score all "
        f"of its rows, give --data {paths}."
    )
