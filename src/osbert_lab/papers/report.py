"""Writes a table of the paper with our figures: results.json, table.txt, and a note on every collapsed run."""

from __future__ import annotations

import itertools
import json
import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from osbert.files import write_json, write_text
from osbert.terminal import in_columns
from osbert.training.tracking import NAME, read_lines
from osbert_lab.papers.data import TableColumn
from osbert_lab.papers.plan import PROTOCOL, TablePlan
from osbert_lab.papers.shared_masks import SharedMaskScore, score_masks
from osbert_lab.papers.tables import TableRow, spread
from osbert_lab.papers.word_similarity import WordScore
from osbert_lab.papers.word_tests import score_words
from osbert_lab.study.runner import StudyTrial, read_results

AVERAGE = "average"
"""The column with the mean of all others; computed if all of them were measured."""
SHARED_MASKS = "same masks"
"""The column with the accuracy on the masks that all rows share."""
MARK = "!"
"""Marks a figure that includes a collapsed run."""
Scores = Mapping[str, Sequence[float]]
"""Scores by column, one per seed."""


def write_table_report(plan: TablePlan) -> str:
    """Write results.json and table.txt after all runs have ended; return the text of the table."""
    scores_by_row = {row.name: row_scores(plan, row) for row in plan.table.rows}
    # An ensemble adds one row, with one value per column: the runs of all seeds answer together.
    if ensemble := plan.ensemble():
        [column], metrics = plan.columns, ensemble.metrics
        scores_by_row[plan.table.ensemble] = {name: [metrics[score]] for name, score in column.measured.items()}
    protocol = json.loads((plan.out / PROTOCOL).read_text("utf-8"))
    collapsed = {"collapsed": collapse_lines} if (collapse_lines := describe_collapses(plan)) else {}
    write_json(plan.out / "results.json", {"protocol": protocol, "scores": scores_by_row, **collapsed})
    lines = [plan.table.published.title, "", *_description(plan), ""]
    rows = cells(plan, scores_by_row)
    lines += in_columns(rows, indent="")
    lines += [line for row, scores in scores_by_row.items() if (line := mean_line(plan, row, scores))]
    if collapse_lines:
        marked = any(row_marks(plan, row.name) for row in plan.table.rows)
        mark = f" {MARK}: a figure with such a run in it." if marked else ""
        lines += ["", f"Collapsed runs, which gave all rows one answer; each was run once more.{mark}"]
        lines += [f"  {line}" for line in collapse_lines]
    text = "\n".join(lines) + "\n"
    write_text(plan.out / "table.txt", text)
    return text


def row_scores(plan: TablePlan, row: TableRow) -> dict[str, list[float]]:
    """Return a row's scores by column, one per seed: of the seeds from 0 on that have been measured."""
    scores: dict[str, list[float]] = {}
    for column in plan.columns:
        metrics = [read_results(trial)[-1].metrics for trial in plan.trials_of(row, column)]
        for name, score in column.measured.items():
            # Up to the first seed that is missing: the scores of two rows are paired by their places.
            measured = list(itertools.takewhile(lambda trial_metrics, score=score: score in trial_metrics, metrics))  # type: ignore[misc]
            if measured:
                scores[name] = [trial_metrics[score] for trial_metrics in measured]
    words = [word_scores(plan, row, seed) for seed in range(plan.scale.seeds)]
    for test in plan.word_tests:
        test_scores = [seed_scores[test.name].score for seed_scores in itertools.takewhile(bool, words)]
        # NaN where too few of the words are in the vocabulary, or all vectors are alike: nothing was measured.
        if test_scores and all(map(math.isfinite, test_scores)):
            scores[test.name] = test_scores
    if masked := mask_scores(plan, row):
        scores[SHARED_MASKS] = [score.accuracy for score in masked]
    if plan.table.perplexity:
        folders = [plan.encoders.folder(row, seed, plan.out) for seed in range(plan.scale.seeds)]
        scores[plan.table.perplexity] = [perplexity(folder) for folder in folders]
    # The average is taken seed by seed, so that it has a standard deviation of its own.
    others = [name for name in plan.table.published.columns if name != AVERAGE]
    if AVERAGE in plan.table.published.columns and {*others} <= {*scores}:
        scores[AVERAGE] = [statistics.fmean(values) for values in zip(*(scores[name] for name in others))]
    return scores


def word_scores(plan: TablePlan, row: TableRow, seed: int) -> dict[str, WordScore]:
    """Return the scores of a row's encoder on the tests of words; {} if it is not finished."""
    return score_words(plan.encoders.folder(row, seed, plan.out), plan.word_tests, plan.data)


def mask_scores(plan: TablePlan, row: TableRow) -> list[SharedMaskScore]:
    """Return the scores of a row's encoders on the masks that all rows share, one per seed up to the first that is
    missing; [] if the table has none."""
    scores: list[SharedMaskScore] = []
    for masks in (other for other in plan.table.rows if other.name == plan.table.masks):
        for seed in range(plan.scale.seeds):
            encoder, masked = (plan.encoders.folder(either, seed, plan.out) for either in (row, masks))
            if (score := score_masks(encoder, masked)) is None:
                break
            scores.append(score)
    return scores


def cells(plan: TablePlan, scores_by_row: Mapping[str, Scores]) -> list[list[str]]:
    """Return the cells of the table: our rows, published figures in brackets, then published rows that were not run."""
    names, published = plan.table.headings, plan.table.published.figures
    lines = [["ours (published)", *(f"{name}*" if name in plan.split_off else name for name in names)]]
    for row, scores in scores_by_row.items():
        lines.append([row])
        marks = row_marks(plan, row)
        for name in names:
            # A perplexity is shown as it is; all other metrics are fractions shown in per cent.
            scale = 1 if name == plan.table.perplexity else 100
            published_figure = published.get(row, {}).get(name)
            our_figure = spread(scores.get(name, []), scale=scale) + (marks.get(name, "") if name in scores else "")
            lines[-1].append(our_figure if published_figure is None else f"{our_figure} ({published_figure})")
    for row, figures in published.items():
        if row not in scores_by_row:
            lines.append([row, *(f"({figures[name]})" if name in figures else "-" for name in names)])
    return lines


def mean_line(plan: TablePlan, row: str, scores: Scores) -> str:
    """Return a sentence with our and the published mean over the measured columns; "" if the average itself is
    known."""
    published = plan.table.published
    names = [name for name in published.columns if name in scores]
    if AVERAGE not in published.columns or AVERAGE in scores or not names:
        return ""
    our_mean = 100 * statistics.fmean(statistics.fmean(scores[name]) for name in names)
    published_means = [
        f"{name} {statistics.fmean(row[column] for column in names):.1f}" for name, row in published.figures.items()
    ]
    summary = f"No average: columns are missing. Mean of the {len(names)} measured: {row} {our_mean:.1f}"
    return f"{summary}; {', '.join(published_means)}."


def describe_collapses(plan: TablePlan) -> list[str]:
    """Return one line for each run that has collapsed, row by row."""
    trials = (trial for row in plan.table.rows for column in plan.columns for trial in plan.trials_of(row, column))
    return [line for trial in trials if (line := collapse(trial))]


def collapse(trial: StudyTrial) -> str:
    """Describe a collapsed run and the run that replaced it; "" if the run did not collapse."""
    # A trial has a second result only if its first run collapsed and was repeated with another seed.
    first, *others = read_results(trial)
    if not others:
        return ""
    [again] = others
    description = f"{trial.name}: every development row is {first.collapsed}; in its place: seed {again.trial.seed}"
    return f"{description}, collapsed as well and counted all the same" if again.collapsed else description


def perplexity(run: Path) -> float:
    """Return the perplexity of masked tokens on held-out text, exp(loss), at the last evaluation of a pretraining
    run."""
    losses = [line["held_out.mlm.loss"] for line in read_lines(run / NAME) if "held_out.mlm.loss" in line]
    return math.exp(losses[-1])


def _counts_collapsed(trial: StudyTrial) -> bool:
    return bool(read_results(trial)[-1].collapsed)


def row_marks(plan: TablePlan, name: str) -> dict[str, str]:
    """Return MARK for each column of the row whose figure includes a collapsed run."""
    [row] = [row for row in plan.table.rows if row.name == name] or plan.table.rows[:1]  # the first: of an ensemble

    def amiss(column: TableColumn) -> bool:
        return any(_counts_collapsed(trial) for trial in plan.trials_of(row, column))

    marks = {name: MARK for column in plan.columns if amiss(column) for name in column.measured}
    return marks | ({AVERAGE: MARK} if marks else {})


def _description(plan: TablePlan) -> list[str]:
    split_off = f"*: a fifth of the rows of {', '.join(plan.split_off)} was split off for development, since "
    split_off += "training and development files are not both there; the paper's figures are of other rows."
    scale, table = plan.scale, plan.table
    seeds = "one seed" if scale.seeds == 1 else f"{scale.seeds} seeds (mean +- standard deviation)"
    return [
        f"Ours: {plan.encoders.describe(table.rows[0], plan.out)}, {seeds}, "
        f"{f'at most {scale.rows:,}' if scale.rows else 'all'} training rows of a data set, "
        f"{shlex.join(plan.finetuning_words)}; {table.measure} of the best epoch on "
        f"{f'at most {scale.dev_rows:,}' if scale.dev_rows else 'the'} development rows, in per cent.",
        *table.own_settings(plan.columns),
        "In brackets: the paper, BERT BASE unless a row says otherwise. A dash: not run here.",
        f"Files: {'; '.join(_files(plan))}.",
        *([split_off] if plan.split_off else []),
        *([plan.whole] if plan.whole else []),
        *_together(plan),
    ]


def _together(plan: TablePlan) -> list[str]:
    if not plan.table.ensemble:
        return []
    if not plan.ensemble():
        return ["No ensemble: it takes the runs of two seeds or more (--seeds)."]
    seeds = plan.scale.seeds
    return [f"Ensemble: the runs of {seeds} seeds, by the mean of the probabilities that they give to a text."]


def _files(plan: TablePlan) -> list[str]:
    named = {
        column.name: [str(path.relative_to(plan.data)) for path in column.find(plan.data)] for column in plan.columns
    }
    return [f"{column}: {', '.join(names)}" for column, names in named.items()]
