"""The demo's report: curves, scores and predictions as one page, and the same in a few lines on the terminal."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from osbert.reports.page import Section, code, curve, paragraph, table, training_curves, write_report
from osbert.reports.plot import Mark, Series, line_plot
from osbert.runs.contract import Notice, Watch, ignore
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import NAME, read_lines

DemoPrediction = tuple[str, str, str, float]
"""A text, the library meant, the one predicted, and its probability."""


def write_demo_report(
    out: Path, *, seconds: Mapping[str, float], scores: Mapping[str, str], watch: Watch = ignore
) -> Path:
    """Write out/report.html from what the commands of a demo left in its folder, and report its main figures.

    `seconds`: how long each piece of work took, by its name or command. `scores`: what the evaluations printed, that of
    the pretrained classifier first.
    """
    facts = RunFolder(out / "encoder").facts
    pretraining = read_lines(out / "encoder" / NAME)
    tuned = {"pretrained": out / "classifier", "from scratch": out / "from-scratch"}
    accuracies = {name: curve(read_lines(folder / NAME), "dev.accuracy") for name, folder in tuned.items()}
    test = dict(zip(tuned, map(read_accuracy, scores.values()), strict=True))
    predictions = read_predictions(out / "predictions.csv")
    classes = len(read_labels(out / "predictions.csv"))
    total = sum(seconds.values())
    lead = (
        f"{facts['tokens']:,} tokens of docstrings, a small BERT pretrained on them, and a classifier that tells which "
        f"of {classes} libraries a passage describes: {test['pretrained']:.1%} right from the pretrained weights, "
        f"{test['from scratch']:.1%} from random ones with the same budget, {1 / classes:.1%} by guessing. "
        f"All of it took {total:.0f} seconds."
    )
    sections = [
        Section(heading="Pretraining", parts=pretraining_parts(pretraining, facts)),
        Section(
            heading="Fine-tuning",
            parts=[
                line_plot(
                    [
                        Series(name=name, points=points, color=place)
                        for place, (name, points) in enumerate(accuracies.items())
                    ],
                    marks=[Mark(value=1 / classes, label="guessing")],
                    title="accuracy on passages from files that no training saw",
                    percent=True,
                ),
                paragraph(
                    "Both start from the same sizes and see the same rows in the same order. The one starts from the "
                    "pretrained encoder, the other from random weights. The points are the ends of epochs; each run "
                    "keeps the weights of its best one. The scores below are of other passages, which had no say in "
                    "that."
                ),
            ],
        ),
        Section(heading="Scores", parts=[code(f"$ {command}\n{output}") for command, output in scores.items()]),
        Section(heading="Predictions", parts=[prediction_table(predictions), paragraph(_about(predictions))]),
        Section(
            heading="Commands", parts=[table((command, f"{spent:.1f}\u00a0s") for command, spent in seconds.items())]
        ),
    ]
    path = write_report(out / "report.html", "What osbert made of this installation's docstrings", sections, lead=lead)
    loss = [value for _, value in curve(pretraining, "held_out.mlm.loss")]
    for line in main_figures(facts, test, loss=loss[-1] if loss else None, classes=classes):
        watch(Notice(line))
    watch(Notice(f"{total:.0f} s in all; the report is {path}"))
    return path


def pretraining_parts(lines: Sequence[Mapping[str, float]], facts: Mapping[str, float]) -> list[str]:
    """Return the plots of the masked-piece loss with its two lines, and of both accuracies."""
    marks = [
        Mark(value=math.log(facts["vocabulary"]), label=f"ln V = {math.log(facts['vocabulary']):.2f}: any piece alike"),
        Mark(value=facts["unigram_entropy"], label=f"{facts['unigram_entropy']:.2f}: only how frequent pieces are"),
    ]
    loss = line_plot(
        training_curves(lines, "mlm.loss", label="masked pieces"),
        marks=marks,
        title="loss on masked pieces, in nats",
    )
    accuracies = [
        Series(name="masked pieces", points=curve(lines, "held_out.mlm.accuracy")),
        Series(name="next sentence", points=curve(lines, "held_out.nsp.accuracy"), color=2),
    ]
    shown = line_plot(accuracies, title="accuracy on text held out", percent=True)
    return [loss, shown, paragraph("More is in the run's own report, encoder/report.html.")]


def read_labels(path: Path) -> list[str]:
    """Return the classes in a table of predictions."""
    with path.open(encoding="utf-8", newline="") as stream:
        header = next(csv.reader(stream))
    return [name.removeprefix("probability of ") for name in header if name.startswith("probability of ")]


def read_accuracy(scores: str) -> float:
    """Return the accuracy that `osbert evaluate` printed."""
    return float(next(line.split()[1] for line in scores.splitlines() if line.split()[:1] == ["accuracy"]))


def read_predictions(path: Path) -> list[DemoPrediction]:
    """Return the rows of a table of predictions."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [
            (row["text"], row["meant"], row["prediction"], float(row[f"probability of {row['prediction']}"]))
            for row in csv.DictReader(stream)
        ]


def prediction_table(predictions: Iterable[DemoPrediction]) -> str:
    """Return the predictions as a table, their probabilities as bars."""
    rows = []
    for text, meant, said, probability in predictions:
        bar = (
            '<svg viewBox="0 0 100 10" width="100" height="10" role="img" aria-label="probability">'
            f'<rect width="{100 * probability:.0f}" height="10" fill="var(--c0)"/></svg>'
        )
        cells = "".join(f"<td>{cell}</td>" for cell in (escape(meant), escape(said), f"{bar} {probability:.0%}"))
        rows.append(f'<tr><td class="long">{escape(text)}</td>{cells}</tr>')
    head = "".join(f"<th>{cell}</th>" for cell in ("text", "meant", "predicted", "probability"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _about(predictions: Sequence[DemoPrediction]) -> str:
    known = [(meant, said) for _, meant, said, _ in predictions if meant]
    right = sum(meant == said for meant, said in known)
    return (
        f"{right} of {len(known)} right. The first ones were written for this demo; the others come from files that no "
        'training saw. Names in them are masked by the word "library".'
    )


def main_figures(
    facts: Mapping[str, float], test: Mapping[str, float], *, loss: float | None, classes: int
) -> Iterator[str]:
    """Yield the main figures, line by line; `loss` is that of masked pieces on text held out."""
    if loss is not None:
        entropy, guessing = facts["unigram_entropy"], math.log(facts["vocabulary"])
        yield f"masked pieces, text held out: loss {loss:.2f} (unigram entropy {entropy:.2f}, ln V {guessing:.2f})"
    yield f"which of {classes} libraries, files held out (guessing: {1 / classes:.1%}):"
    yield from (f"  {name:14} {accuracy:6.1%}" for name, accuracy in test.items())
