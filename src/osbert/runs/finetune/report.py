"""The report of a fine-tuning run: curves, every epoch's scores, the best epoch's scores of each class, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.evaluation.score import class_scores
from osbert.objectives.left_to_right import LeftToRight
from osbert.reports.page import Section, code, curve, paragraph, table, write_report
from osbert.reports.plot import Series, line_plot, smooth
from osbert.runs.finetune.events import Epoch
from osbert.runs.finetune.rows import TaskOutcome
from osbert.tasks.calibration import Calibration
from osbert.training.tracking import NAME, duration, read_lines


def finetuning_report(folder: Path, *, name: str, best: Mapping[str, Any], outcomes: Sequence[TaskOutcome]) -> Path:
    """Write report.html into the folder of a fine-tuning of the task `name`, `best` being its best epoch's facts.

    `outcomes`: the tasks with what they have learnt from the development rows. Returns the report's path.
    """
    lines = read_lines(folder / NAME)
    settings = recipe.read(folder / "recipe.toml")
    kept = settings.get("scores", {}).get("keep", "best")
    epochs = [line for line in lines if "epoch" in line]
    names = [key for key in epochs[0] if key.startswith("dev.")]
    shown = [key for key in names if "/" not in key]
    scores = ", ".join(f"{key.removeprefix('dev.')} {best['metrics'][key.removeprefix('dev.')]:.4f}" for key in shown)
    classes = {one.task.name: class_scores(one.task, one.scores(best)["metrics"]) for one in outcomes}
    calibrations = {one.task.name: one.calibration for one in outcomes if one.calibration}
    sections = [
        Section(heading="Curves", parts=_curves(lines, epochs, shown)),
        Section(heading="Epochs", parts=[_epochs(epochs, shown, best["epoch"])]),
        *(
            Section(heading=f"F1 of each class, best epoch: {task}", parts=[table(list(found.items()))])
            for task, found in classes.items()
            if found
        ),
        *(Section(heading=f"Probabilities: {task}", parts=_calibration(one)) for task, one in calibrations.items()),
        Section(heading="Settings", parts=[code(recipe.dump(settings))]),
    ]
    lead = (
        f"The model is the one after epoch {Epoch(**best).place}, the {kept} of {len(epochs)} that were scored on the "
        f"development rows: {scores}. "
        f"Training took {duration(best['seconds'] if best['step'] == epochs[-1]['step'] else _seconds(lines))}."
    )
    return write_report(folder / "report.html", f"Fine-tuning: {name}", sections, lead=lead)


def _curves(lines: Sequence[Mapping[str, Any]], epochs: Sequence[Mapping[str, Any]], shown: Sequence[str]) -> list[str]:
    losses = curve(lines, "loss")
    smoothed = Series(name="training", points=smooth(losses, window=max(1, len(losses) // 25)))
    parts = [line_plot([smoothed, Series(name="training", points=losses, look="faint")], title="Loss")]
    auxiliary = f"{LeftToRight().name}.loss"
    if any(auxiliary in line for line in lines):
        names = dict.fromkeys(key for line in lines for key in line if key.endswith(".loss") and key != "train.loss")
        shares = [
            Series(name=key.removesuffix(".loss"), points=curve(lines, key), color=place % 6)
            for place, key in enumerate(names)
        ]
        parts.append(line_plot(shares, title="Losses by name, without their weights"))
    scores = [
        Series(name=key.removeprefix("dev."), points=curve(epochs, key), look="dots", color=place % 6)
        for place, key in enumerate(shown)
        if not key.endswith(("mse", "threshold"))  # the others are shares of 1
    ]
    parts.append(line_plot(scores, title="Scores on the development rows"))
    parts.append(line_plot([Series(name="", points=curve(lines, "learning_rate"))], title="Learning rate"))
    return parts


def _epochs(epochs: Sequence[Mapping[str, Any]], shown: Sequence[str], best: int) -> str:
    head = ("epoch", "step", "training loss", *(key.removeprefix("dev.") for key in shown), "")
    rows = [
        (
            f"{round(line['epoch'], 2):g}",
            f"{line['step']:,}",
            f"{line['train.loss']:.4f}",
            *("not a number" if line[key] is None else f"{line[key]:.4f}" for key in shown),
            "its weights are the model" if line["epoch"] == best else "",
        )
        for line in epochs
    ]
    return table(rows, head=head)


def _calibration(found: Calibration) -> list[str]:
    rows = [("before", found.error_before), ("after", found.error_after)]
    said = f"{found.describe()}. The scores above were taken on the same rows; a temperature changes none of them."
    return [
        table([(when, f"{error:.4f}") for when, error in rows], head=("", "expected calibration error")),
        paragraph(said[0].upper() + said[1:]),
    ]


def _seconds(lines: Sequence[Mapping[str, Any]]) -> float:
    return max((line["seconds"] for line in lines if "seconds" in line), default=0.0)
