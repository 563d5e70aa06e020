"""The report of a fine-tuning run: scores, data, curves, errors by label and length, settings."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.evaluation.bootstrap import ScoreInterval
from osbert.objectives.left_to_right import LeftToRight
from osbert.reports.charts import BarRow, bar_plot
from osbert.reports.outcomes import TaskResult, result_sections, scores_table, text_lengths
from osbert.reports.page import Section, code, curve, paragraph, table, write_report
from osbert.reports.plot import Series, line_plot, smooth
from osbert.runs.finetune.records import find_repeats
from osbert.runs.finetune.rows import TaskOutcome, TaskRows
from osbert.runs.finetune.training_loop import MAP, FinetuneTrainer
from osbert.tasks import Prediction, Record
from osbert.tasks.calibration import Calibration, at_temperature
from osbert.tasks.tables.soft_labels import fit_votes
from osbert.training.tracking import NAME, duration, read_lines

KEPT = {"best": "best", "last": "last", "better": "better of the first and the last"}
"""The epoch that is kept, in words, by the setting."""


def finetuning_report(run: FinetuneTrainer, *, name: str) -> Path:
    """Write report.html into the folder of a finished fine-tuning of the task `name`. Returns the report's path."""
    assert run.scored is not None  # `FinetuneTrainer.finish` has made sure
    folder, best = run.folder, run.best
    lines = read_lines(folder / NAME)
    settings = recipe.read(folder / "recipe.toml")
    epochs = [line for line in lines if "epoch" in line]
    names = [key for key in epochs[0] if key.startswith("dev.")]
    score_keys = [key for key in names if "/" not in key]
    scores = ", ".join(f"{key.removeprefix('dev.')} {best.metrics[key.removeprefix('dev.')]:.4f}" for key in score_keys)
    tasks = [
        _task_sections(run, outcome, rows, predictions, intervals)
        for outcome, rows, predictions, intervals in zip(
            run.outcomes, run.rows.tasks, run.scored.predictions, run.intervals, strict=True
        )
    ]
    sections = [
        *(scores for scores, *_ in tasks),
        Section(heading="Curves", parts=_curves(run, lines, epochs, score_keys)),
        Section(heading="Epochs", parts=[_epochs(epochs, score_keys, best.epoch)]),
        *(section for _, *others in tasks for section in others),
        *(
            [data_map.section(list(run.map.rows.training), MAP)]
            if run.map and (data_map := run.map.read(run.epochs))
            else []
        ),
        Section(heading="Settings", parts=[code(recipe.dump(settings))]),
    ]
    seconds = max((line["seconds"] for line in lines if "seconds" in line), default=0.0)
    lead = (
        f"The model is the one after epoch {best.place}, the {KEPT[run.scores.keep]} of {len(epochs)} that were scored "
        f"on the development rows: {scores}. "
        f"Training took {duration(best.seconds if best.step == epochs[-1]['step'] else seconds)}."
    )
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
    parts = [scores_table(task.metrics(predictions, rows.development), intervals), paragraph(caption)]
    parts += _rivals(run)
    return [
        Section(heading=result.heading(f"Scores of the {run.scores.keep} epoch"), parts=parts),
        Section(heading=result.heading("Data"), parts=[*data_parts(rows)]),
        *result_sections(result, _calibration(calibration) if calibration else ()),
    ]


def _rivals(run: FinetuneTrainer) -> list[str]:
    """Return a table of the linear layer's scores and those after tuning, if the run has both."""
    rivals = run.rivals
    if not rivals:
        return []
    names = [name for name in run.best.metrics if "/" not in name]
    cells = [(name, epoch.place, *(f"{epoch.metrics[score]:.4f}" for score in names)) for name, epoch in rivals.items()]
    return [
        table(cells, head=("model", "epoch", *names)),
        paragraph(
            "A linear layer on the frozen encoder's states, and the tuned model"
            + (", the last one of which is kept." if run.scores.keep == "last" else ": the better one is kept.")
        ),
    ]


def _curves(
    run: FinetuneTrainer,
    lines: Sequence[Mapping[str, Any]],
    epochs: Sequence[Mapping[str, Any]],
    score_keys: Sequence[str],
) -> list[str]:
    memory = run.trainer.memory  # of a short run it has every step, as metrics.jsonl has few
    losses = [(step, loss) for step, loss in memory.get("course", ())] or curve(lines, "loss")
    smoothed = Series(name="training", points=smooth(losses, window=max(1, len(losses) // 25)))
    # In few-shot learning the loss of an epoch is that of the fitted layer.
    name = "the fitted layer" if run.settings.few_shot not in ("none", "linear-first") else "mean of an epoch"
    by_epoch = Series(name=name, points=curve(epochs, "train.loss"), look="dots", color=1)
    parts = [line_plot([smoothed, Series(name="training", points=losses, look="faint"), by_epoch], title="Loss")]
    auxiliary = f"{LeftToRight().name}.loss"
    if any(auxiliary in line for line in lines):
        names = dict.fromkeys(key for line in lines for key in line if key.endswith(".loss") and key != "train.loss")
        loss_series = [
            Series(name=key.removesuffix(".loss"), points=curve(lines, key), color=index % 6)
            for index, key in enumerate(names)
        ]
        parts.append(line_plot(loss_series, title="Losses by name, without their weights"))
    scores = [
        Series(name=key.removeprefix("dev."), points=curve(epochs, key), look="dots", color=index % 6)
        for index, key in enumerate(score_keys)
        if not key.endswith(("mse", "threshold"))  # the others are shares of 1
    ]
    parts.append(line_plot(scores, title="Scores on the development rows"))
    rates = [(step, rate) for step, rate in memory.get("rates", ())] or curve(lines, "learning_rate")
    parts.append(line_plot([Series(name="", points=rates)], title="Learning rate"))
    return parts


def _epochs(epochs: Sequence[Mapping[str, Any]], score_keys: Sequence[str], best: float) -> str:
    head = ("epoch", "step", "training loss", *(key.removeprefix("dev.") for key in score_keys), "")
    rows = [
        (
            f"{round(line['epoch'], 2):g}",
            f"{line['step']:,}",
            f"{line['train.loss']:.4f}",
            *("not a number" if line[key] is None else f"{line[key]:.4f}" for key in score_keys),
            "its weights are the model" if line["epoch"] == best else "",
        )
        for line in epochs
    ]
    return table(rows, head=head)


def _calibration(calibration: Calibration) -> list[str]:
    rows = [("before", calibration.error_before), ("after", calibration.error_after)]
    description = (
        f"{calibration.describe()}. The scores above were taken on the same rows; a temperature changes none of them."
    )
    return [
        table([(when, f"{error:.4f}") for when, error in rows], head=("", "expected calibration error")),
        paragraph(description[0].upper() + description[1:]),
    ]


MEASURED = 20_000
"""Most rows of a split whose tokens are counted; of more rows, this many at equal distances."""
MOST_LABELS = 30
"""Number of labels shown, the most frequent ones."""
BINS = 8
"""Approximate number of bins in the histogram of lengths."""
SHOWN, LONGEST = 5, 80
"""Most listed rows that are in both splits, and most characters of each text."""
SPLITS = ("training", "development")


def data_parts(rows: TaskRows) -> Iterator[str]:
    """Yield tables and plots of a task's training and development rows."""
    splits = dict(zip(SPLITS, (rows.training, rows.development)))
    lengths = {
        name: text_lengths(records[:: -(-len(records) // MEASURED) or 1], rows.packer)
        for name, records in splits.items()
    }
    yield table(_figures(splits, lengths), head=("", *SPLITS))
    if rows.truncation:
        yield paragraph(rows.truncation)
    counts = {
        name: Counter(label for record in records for label in rows.task.names(record))
        for name, records in splits.items()
    }
    if any(counts.values()):
        yield _labels(counts)
    if votes := fit_votes([*rows.training, *rows.development]):
        yield paragraph(votes.describe())
        head, *lines = votes.table()
        yield table(lines, head=head)
    yield _histogram(lengths)
    yield from _overlap(rows.training, rows.development)


def _figures(splits: Mapping[str, Sequence[Record]], lengths: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, ...]]:
    yield ("rows", *(f"{len(records):,}" for records in splits.values()))
    for name, figure in (("median", statistics.median), ("longest", max)):
        yield (
            f"tokens of a row, {name}",
            *(f"{figure(row_lengths):,.0f}" if row_lengths else "" for row_lengths in lengths.values()),
        )
    numbers = [[record.label for record in records if isinstance(record.label, float)] for records in splits.values()]
    if any(len({*values}) > 1 for values in numbers):
        yield ("labels", *(f"{min(values):g} to {max(values):g}" if values else "" for values in numbers))


def _labels(counts: Mapping[str, Counter[str]]) -> str:
    """Return a bar chart of the fraction of each label in a split."""
    total = sum(counts.values(), Counter[str]())
    top_labels = [label for label, _ in total.most_common(MOST_LABELS)]
    bars = [
        BarRow(name=label, values=[counter[label] / max(counter.total(), 1) for counter in counts.values()])
        for label in top_labels
    ]
    more = f", the {len(top_labels)} most frequent of {len(total):,}" if len(total) > len(top_labels) else ""
    return bar_plot(bars, [*counts], title=f"Labels{more}")


def _histogram(lengths: Mapping[str, Sequence[int]]) -> str:
    """Return a histogram of the lengths of a split's rows."""
    longest = max((max(row_lengths) for row_lengths in lengths.values() if row_lengths), default=1)
    step = max(1, round(longest / BINS))
    groups = [Counter(length // step for length in row_lengths) for row_lengths in lengths.values()]
    bars = [
        BarRow(
            name=f"{index * step:,} to {(index + 1) * step - 1:,}" if step > 1 else f"{index:,}",
            values=[counter[index] / max(counter.total(), 1) for counter in groups],
        )
        for index in range(longest // step + 1)
    ]
    return bar_plot(bars, [*lengths], title="Rows by their tokens")


def _overlap(training: Sequence[Record], development: Sequence[Record]) -> Iterator[str]:
    """Yield the number of development rows that have the texts of a training row, and the first of them."""
    repeats = find_repeats(training, development)
    if not repeats:
        yield paragraph("No development row has the texts of a training row.")
        return
    other = sum(repr(record.label) != repr(first.label) for record, first in repeats)
    yield paragraph(
        f"{len(repeats):,} of {len(development):,} development rows have the texts of a training row, up to case and "
        f"spaces; {other:,} of them with another label. They make the scores look better than they are."
    )
    cells = [
        (" | ".join(text[:LONGEST] for text in record.texts), record.place, first.place)
        for record, first in repeats[:SHOWN]
    ]
    yield table(cells, head=("text", "development", "training"))
