"""The demo's report: curves, scores and predictions as a page, and a short summary for the terminal."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from osbert.reports.page import Section, code, curve, paragraph, table, training_curves, write_report
from osbert.reports.plot import Mark, Point, Series, line_plot
from osbert.runs.contract import Notice, Watch, ignore
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import NAME, read_lines
from osbert_lab.demo.stages import SCORES, TUNED

DemoPrediction = tuple[str, str, str, float]
"""A text, its library, the predicted library, and the probability of the prediction."""


def write_demo_report(
    out: Path,
    *,
    model: str,
    seconds: Mapping[str, float],
    outputs: Mapping[str, Mapping[str, str]],
    watch: Watch = ignore,
) -> Path:
    """Write out/report.html from the files that the demo's commands left in its folder, and report the main figures.

    `model`: the published encoder. `seconds`: duration of each piece of work, by name or command. `outputs`: printed
    output by heading and command; its scores belong to the runs in TUNED, the last of which may be missing.
    """
    facts = RunFolder(out / "encoder").facts
    pretraining = read_lines(out / "encoder" / NAME)
    runs = dict(zip(("pretrained", "from scratch", Path(model).name), TUNED))
    test = dict(zip(runs, map(read_accuracy, outputs[SCORES].values())))
    accuracies = {name: curve(read_lines(out / runs[name] / NAME), "dev.accuracy") for name in test}
    predictions = read_predictions(out / "predictions.csv")
    classes = len(read_labels(out / "predictions.csv"))
    total = sum(seconds.values())
    sections = [
        Section(heading="Pretraining", parts=pretraining_parts(pretraining, facts)),
        Section(heading="Fine-tuning", parts=tuning_parts(accuracies, guessing=1 / classes)),
        *output_sections(outputs),
        Section(heading="Predictions", parts=[prediction_table(predictions), paragraph(_about(predictions))]),
        Section(
            heading="Commands", parts=[table((command, f"{spent:.1f}\u00a0s") for command, spent in seconds.items())]
        ),
    ]
    lead = summary(test, tokens=facts["tokens"], classes=classes, seconds=total)
    path = write_report(out / "report.html", "What osbert made of this installation's docstrings", sections, lead=lead)
    loss = [value for _, value in curve(pretraining, "held_out.mlm.loss")]
    for line in main_figures(facts, test, loss=loss[-1] if loss else None, classes=classes):
        watch(Notice(line))
    watch(Notice(f"{total:.0f} s in total; the report is {path}"))
    return path


def summary(test: Mapping[str, float], *, tokens: int, classes: int, seconds: float) -> str:
    """Describe in a few sentences what the demo did, and how accurate its classifiers are on the test rows."""
    published = [f"{accuracy:.1%} from {name}, a published encoder" for name, accuracy in [*test.items()][2:]]
    accuracies = [
        f"{test['pretrained']:.1%} right from the pretrained weights",
        f"{test['from scratch']:.1%} from random ones with the same budget",
        *published,
        f"{1 / classes:.1%} by guessing",
    ]
    return (
        f"{tokens:,} tokens of docstrings, a small BERT pretrained on them, and classifiers that predict which of "
        f"{classes} libraries a passage describes: {', '.join(accuracies)}. All of it took {seconds:.0f} seconds."
    )


def tuning_parts(accuracies: Mapping[str, Sequence[Point]], *, guessing: float) -> list[str]:
    """Return the plot of development accuracy by step, a line per classifier, with a caption."""
    lines = [Series(name=name, points=points, color=color) for color, (name, points) in enumerate(accuracies.items())]
    published = [Mark(value=line.points[-1][1], label=line.name) for line in lines[2:]]  # it is fitted in one step
    plot = line_plot(
        lines[:2],
        marks=[Mark(value=guessing, label="guessing"), *published],
        title="accuracy on passages from files that no training saw",
        percent=True,
    )
    about = (
        "The first two start from the same sizes and see the same rows in the same order: one from the pretrained "
        "encoder, the other from random weights. The points are the ends of epochs; each run keeps the weights of its "
        "best one. The scores below are of other passages, which had no say in that."
    )
    more = (
        " The third is one layer on the vectors of an encoder that was pretrained on far more text and stays as it is."
    )
    return [plot, paragraph(about + (more if published else ""))]


def output_sections(outputs: Mapping[str, Mapping[str, str]]) -> list[Section]:
    """Return a section for each heading: its commands and their outputs."""
    return [
        Section(heading=heading, parts=[code(f"$ {command}\n{output}") for command, output in printed.items()])
        for heading, printed in outputs.items()
    ]


def pretraining_parts(lines: Sequence[Mapping[str, float]], facts: Mapping[str, float]) -> list[str]:
    """Return two plots: the masked-token loss in training and on held-out text, and both accuracies."""
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
    accuracy_plot = line_plot(accuracies, title="accuracy on text held out", percent=True)
    return [loss, accuracy_plot, paragraph("More is in the run's own report, encoder/report.html.")]


def read_labels(path: Path) -> list[str]:
    """Return the classes in a table of predictions."""
    with path.open(encoding="utf-8", newline="") as stream:
        header = next(csv.reader(stream))
    return [name.removeprefix("probability of ") for name in header if name.startswith("probability of ")]


def read_accuracy(scores: str) -> float:
    """Return the accuracy in the output of `osbert evaluate`."""
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
    for text, label, answer, probability in predictions:
        bar = (
            '<svg viewBox="0 0 100 10" width="100" height="10" role="img" aria-label="probability">'
            f'<rect width="{100 * probability:.0f}" height="10" fill="var(--c0)"/></svg>'
        )
        cells = "".join(f"<td>{cell}</td>" for cell in (escape(label), escape(answer), f"{bar} {probability:.0%}"))
        rows.append(f'<tr><td class="long">{escape(text)}</td>{cells}</tr>')
    head = "".join(f"<th>{cell}</th>" for cell in ("text", "meant", "predicted", "probability"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _about(predictions: Sequence[DemoPrediction]) -> str:
    known = [(label, answer) for _, label, answer, _ in predictions if label]
    right = sum(label == answer for label, answer in known)
    return (
        f"{right} of {len(known)} right. The first ones were written for this demo; the others come from files that no "
        'training saw. Names in them are masked by the word "library".'
    )


def main_figures(
    facts: Mapping[str, float], test: Mapping[str, float], *, loss: float | None, classes: int
) -> Iterator[str]:
    """Yield the main figures, line by line; `loss` is the masked-token loss on held-out text."""
    if loss is not None:
        entropy, guessing = facts["unigram_entropy"], math.log(facts["vocabulary"])
        yield f"masked pieces, text held out: loss {loss:.2f} (unigram entropy {entropy:.2f}, ln V {guessing:.2f})"
    yield f"which of {classes} libraries, files held out (guessing: {1 / classes:.1%}):"
    yield from (f"  {name:14} {accuracy:6.1%}" for name, accuracy in test.items())
