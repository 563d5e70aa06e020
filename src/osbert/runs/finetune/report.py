"""The report of a fine-tuning run: scores, data, curves, errors by label and length, settings."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from osbert.evaluation.bootstrap import ScoreInterval
from osbert.objectives.left_to_right import LeftToRight
from osbert.reports.charts import BarRow, bar_plot
from osbert.reports.outcomes import TaskResult, result_sections, scores_table, text_lengths
from osbert.reports.page import Section, code, curve, paragraph, table, write_report
from osbert.reports.plot import Series, line_plot, smooth
from osbert.runs.finetune.few_shot import CROSSED
from osbert.runs.finetune.records import find_repeats
from osbert.runs.finetune.rows import TaskOutcome, TaskRows
from osbert.runs.finetune.training_loop import FinetuneTrainer
from osbert.tasks import Prediction
from osbert.tasks.calibration import at_temperature
from osbert.tasks.tables.soft_labels import fit_votes
from osbert.training.run_folder import RECIPE
from osbert.training.tracking import NAME, duration, read_lines

KEPT = {"best": "best", "last": "last", "better": "better of the first and the last"}
"""The epoch that is kept, in words, by the setting."""


def finetuning_report(run: FinetuneTrainer, *, name: str) -> Path:
    """Write report.html into the folder of a finished fine-tuning of the task `name`. Returns the report's path."""
    assert run.scored is not None  # `FinetuneTrainer.finish` has made sure
    folder, best = run.folder, run.best
    lines = read_lines(folder / NAME)
    epochs = [line for line in lines if "epoch" in line]
    score_names = [key.removeprefix("dev.") for key in epochs[0] if key.startswith("dev.") and "/" not in key]
    epoch_rows = [
        (
            f"{round(line['epoch'], 2):g}",
            f"{line['step']:,}",
            f"{line['train.loss']:.4f}",
            *["not a number" if (score := line[f"dev.{key}"]) is None else f"{score:.4f}" for key in score_names],
            "its weights are the model" if line["epoch"] == best.epoch else "",
        )
        for line in epochs
    ]
    of_scores, of_predictions = [], []  # sections, of each task in turn
    for outcome, rows, predictions, intervals in zip(
        run.outcomes, run.rows.tasks, run.scored.predictions, run.intervals, strict=True
    ):
        scores, *others = _task_sections(run, outcome, rows, predictions, intervals)
        of_scores.append(scores)
        of_predictions += others
    if run.map:
        of_predictions += run.map.sections(run.epochs)
    sections = [
        *of_scores,
        Section(heading="Curves", parts=_curves(run, lines, epochs, score_names)),
        Section(heading="Epochs", parts=[table(epoch_rows, head=("epoch", "step", "training loss", *score_names, ""))]),
        *of_predictions,
        Section(heading="Settings", parts=[code((folder / RECIPE).read_text("utf-8"))]),
    ]
    seconds = best.seconds  # of a run that went on behind its best epoch those of the last line
    if best.step != epochs[-1]["step"]:
        seconds = max([line["seconds"] for line in lines if "seconds" in line], default=0.0)
    figures = ", ".join([f"{key} {best.metrics[key]:.4f}" for key in score_names])
    chosen = f", the {KEPT[run.scores.keep]} of {len(epochs)} that were scored on the development rows: {figures}"
    took = f"Training took {duration(seconds)}."
    lead = f"The model is the one after epoch {best.place}{chosen if figures else ''}. {took}"
    return write_report(folder / "report.html", f"Fine-tuning: {name}", sections, lead=lead)


def _task_sections(
    run: FinetuneTrainer,
    outcome: TaskOutcome,
    rows: TaskRows,
    predictions: Sequence[Prediction],
    intervals: Mapping[str, ScoreInterval],
) -> list[Section]:
    """Return the sections of one task, its scores first. The predictions are those before temperature scaling."""
    task, calibration = outcome.task, outcome.calibration
    fitted = calibration is not None and calibration.temperature != 1
    result = TaskResult(
        task=task,
        records=rows.development,
        predictions=at_temperature(predictions, calibration.temperature) if calibration and fitted else predictions,
        raw=predictions if fitted else (),
        lengths=text_lengths(rows.development, rows.packer),
        name=outcome.folder,
    )
    chosen = ", by which the epoch was chosen as well" if run.scores.chooses(run.settings) else ""
    caption = f"On {len(rows.development):,} development rows{chosen}."
    heading, read = f"Scores of the {run.scores.keep} epoch", rows
    if rows.cross_validation:
        caption = f"No row is held out of so few: {CROSSED} ({len(rows.development):,} rows)."
        heading, read = "Scores of a linear layer", replace(rows, development=())
    scores = task.metrics(predictions, rows.development) if rows.development else {}
    parts = [scores_table(scores, intervals), paragraph(caption)]
    if rivals := run.rivals:  # the linear layer and the tuned model
        names = [name for name in run.best.metrics if "/" not in name]
        cells = [
            (name, epoch.place, *[f"{epoch.metrics[score]:.4f}" for score in names]) for name, epoch in rivals.items()
        ]
        models = "A linear layer on the frozen encoder's states, and the tuned model"
        words = models + (
            ", the last one of which is kept." if run.scores.keep == "last" else ": the better one is kept."
        )
        parts += [table(cells, head=("model", "epoch", *names)), paragraph(words)]
    temperature: list[str] = []
    if calibration:
        errors = [("before", f"{calibration.error_before:.4f}"), ("after", f"{calibration.error_after:.4f}")]
        taken = "The scores above were taken on the same rows; a temperature changes none of them."
        words = f"{calibration.describe()}. {taken}"
        temperature = [
            table(errors, head=("", "expected calibration error")),
            paragraph(words[0].upper() + words[1:]),
        ]
    return [
        Section(heading=result.heading(heading), parts=parts),
        Section(heading=result.heading("Data"), parts=[*data_parts(read, result.lengths if read.development else ())]),
        *(result_sections(result, temperature) if rows.development else ()),
    ]


def _curves(
    run: FinetuneTrainer,
    lines: Sequence[Mapping[str, Any]],
    epochs: Sequence[Mapping[str, Any]],
    score_names: Sequence[str],
) -> list[str]:
    memory = run.trainer.memory  # of a short run it has every step, as metrics.jsonl has few
    losses = [(step, loss) for step, loss in memory.get("course", ())] or curve(lines, "loss")
    smoothed = Series(name="training", points=smooth(losses, window=max(1, len(losses) // 25)))
    # In few-shot learning the loss of an epoch is that of the fitted layer.
    name = "the fitted layer" if run.settings.few_shot not in ("none", "linear-first") else "mean of an epoch"
    by_epoch = Series(name=name, points=curve(epochs, "train.loss"), look="dots", color=1)
    parts = [line_plot([smoothed, Series(name="training", points=losses, look="faint"), by_epoch], title="Loss")]
    keys = dict.fromkeys([key for line in lines for key in line if key.endswith(".loss") and key != "train.loss"])
    if f"{LeftToRight().name}.loss" in keys:
        loss_series = [
            Series(name=key.removesuffix(".loss"), points=curve(lines, key), color=index % 6)
            for index, key in enumerate(keys)
        ]
        parts.append(line_plot(loss_series, title="Losses by name, without their weights"))
    scores = [
        Series(name=name, points=curve(epochs, f"dev.{name}"), look="dots", color=index % 6)
        for index, name in enumerate(score_names)
        if not name.endswith(("mse", "threshold"))  # the others are shares of 1
    ]
    parts += [line_plot(scores, title="Scores on the development rows")] if scores else []
    rates = [(step, rate) for step, rate in memory.get("rates", ())] or curve(lines, "learning_rate")
    parts.append(line_plot([Series(name="", points=rates)], title="Learning rate"))
    return parts


MEASURED = 20_000
"""Most rows of a split whose tokens are counted; of more rows, this many at equal distances."""
MOST_LABELS = 30
"""Number of labels shown, the most frequent ones."""
BINS = 8
"""Approximate number of bins in the histogram of lengths."""
SHOWN, LONGEST = 5, 80
"""Most listed rows that are in both splits, and most characters of each text."""
SPLITS = ("training", "development")


def data_parts(rows: TaskRows, development: Sequence[int]) -> Iterator[str]:
    """Yield tables and plots of a task's training and development rows; `development`: the tokens of the latter."""
    splits = dict(zip(SPLITS, (rows.training, rows.development)))
    training_step, development_step = (-(-len(records) // MEASURED) or 1 for records in splits.values())
    lengths = [text_lengths(rows.training[::training_step], rows.packer), development[::development_step]]
    figures = [["rows", *[f"{len(records):,}" for records in splits.values()]]]
    for name, figure in (("median", statistics.median), ("longest", max)):
        figures.append([f"tokens of a row, {name}", *[f"{figure(split):,.0f}" if split else "" for split in lengths]])
    numbers: list[list[float]] = [[] for _ in splits]
    counts: list[Counter[str]] = [Counter() for _ in splits]
    for values, counter, records in zip(numbers, counts, splits.values()):
        for record in records:
            counter.update(rows.task.names(record))
            if isinstance(record.label, float):
                values.append(record.label)
    if max(len({*values}) for values in numbers) > 1:
        figures.append(["labels", *[f"{min(values):g} to {max(values):g}" if values else "" for values in numbers]])
    yield table(figures, head=("", *SPLITS))
    if rows.truncation:
        yield paragraph(rows.truncation)
    if total := counts[0] + counts[1]:
        top_labels = [label for label, _ in total.most_common(MOST_LABELS)]
        bars = [
            BarRow(name=label, values=[counter[label] / max(counter.total(), 1) for counter in counts])
            for label in top_labels
        ]
        more = f", the {len(top_labels)} most frequent of {len(total):,}" if len(total) > len(top_labels) else ""
        yield bar_plot(bars, SPLITS, title=f"Labels{more}")
    if votes := fit_votes([*rows.training, *rows.development]):
        yield paragraph(votes.describe())
        head, *lines = votes.table()
        yield table(lines, head=head)
    longest = max([*lengths[0], *lengths[1]], default=1)
    step = max(1, round(longest / BINS))
    bins = [Counter([length // step for length in split]) for split in lengths]
    bars = [
        BarRow(
            name=f"{index * step:,} to {(index + 1) * step - 1:,}" if step > 1 else f"{index:,}",
            values=[counter[index] / max(counter.total(), 1) for counter in bins],
        )
        for index in range(longest // step + 1)
    ]
    yield bar_plot(bars, SPLITS, title="Rows by their tokens")
    if not rows.development:
        return
    repeats = find_repeats(rows.training, rows.development)
    if not repeats:
        yield paragraph("No development row has the texts of a training row.")
        return
    other = sum(repr(record.label) != repr(first.label) for record, first in repeats)
    yield paragraph(
        f"{len(repeats):,} of {len(rows.development):,} development rows have the texts of a training row, up to case "
        f"and spaces; {other:,} of them with another label. They make the scores look better than they are."
    )
    cells = [
        (" | ".join([text[:LONGEST] for text in record.texts]), record.place, first.place)
        for record, first in repeats[:SHOWN]
    ]
    yield table(cells, head=("text", "development", "training"))
