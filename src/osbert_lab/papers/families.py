"""The comparison of families: results.json, table.txt, and report.html with each recipe's pretraining and scores."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osbert import recipe
from osbert.files import write_json, write_text
from osbert.reports.page import Section, code, paragraph, table, write_report
from osbert.terminal import in_columns
from osbert.training.run_folder import RunFolder
from osbert.training.tracking import HELD_OUT, NAME, read_lines
from osbert_lab.papers.plan import PROTOCOL, TablePlan
from osbert_lab.papers.report import (
    MARK,
    SHARED_MASKS,
    describe_collapses,
    mask_scores,
    row_marks,
    row_scores,
    word_scores,
)
from osbert_lab.papers.tables import TableRow
from osbert_lab.papers.verdicts import (
    RowComparison,
    Scores,
    claim_sentence,
    compare_all_rows,
    describe_intervals,
    format_mean,
    select_significant,
)
from osbert_lab.papers.years import gains_section, timelines
from osbert_lab.static_vectors.settings import vector_schema
from osbert_lab.strips import Dot, Strip, strip_plot
from osbert_lab.study.runner import is_finished

REPORT = "report.html"
OFF = 0.05
"""Largest relative deviation from --minutes that is tolerated; the report names runs beyond it."""
SAME_MINUTES = (
    "Every recipe has the same minutes on the clock, start and end included, one run at a time, in turns over the "
    f"seeds. Runs that missed the minutes by more than {OFF:.0%}, and runs that were stopped on the way, are named "
    "below the scores. "
)
OWN_STEPS = "Every recipe has the number of steps in its settings, whatever time they take. "
PROTOCOL_SAID = (
    "Each encoder is then fine-tuned with the same settings, rows and seed. A seed decides both, so an interval "
    "holds the chance of both. Scores are those of the best epoch on the development rows. A difference is taken seed "
    "by seed; its 95% interval is Student's t. Rows keep the rates, schedules, shares of masks and layouts of their "
    "recipes, so a difference is one of whole recipes, not of a family alone."
)
LOSSES = "Held-out losses are nats in each objective's own terms: those of different objectives cannot be compared."

ROUNDS = "A step of word2vec is a round of at most 4 million words, one of GloVe a pass over its pairs of words."


@dataclass(frozen=True, kw_only=True)
class FamilyRun:
    """One pretraining run: the number of `parameters`, and the `last` value of each metric in metrics.jsonl."""

    parameters: int
    last: Mapping[str, float]

    @property
    def held_out(self) -> dict[str, float]:
        """The held-out loss by objective."""
        prefix, ending = f"{HELD_OUT}.", ".loss"
        # Keys are held_out.OBJECTIVE.loss; keys with more dots are losses of parts of an objective.
        losses = {name: value for name, value in self.last.items() if name.startswith(prefix) and name.endswith(ending)}
        return {name.removeprefix(prefix).removesuffix(ending): losses[name] for name in losses if name.count(".") == 2}


def write_families_report(plan: TablePlan) -> str:
    """Write results.json, table.txt and report.html after all runs have ended; return the text of the table."""
    rows = plan.table.rows
    seen = {row.name: _runs(plan, row) for row in rows}
    scores = {row.name: row_scores(plan, row) for row in rows}
    protocol = json.loads((plan.out / PROTOCOL).read_text("utf-8"))
    figures = {name: [{"parameters": run.parameters, **run.last} for run in runs] for name, runs in seen.items()}
    masked = {name: [vars(score) for score in mask_scores(plan, row)] for name, row in zip(seen, rows)}
    results = {"protocol": protocol, "pretraining": figures, "scores": scores}
    write_json(plan.out / "results.json", {**results, **({SHARED_MASKS: masked} if plan.table.masks else {})})
    lead = (
        f"{len(rows)} recipes, {plan.scale.seeds} seeds. In brackets: the 95% interval of the mean. Fine-tuning: "
        f"{protocol['finetuning']}; scores in per cent, {plan.table.measure} on development rows."
    )
    differences = compare_all_rows(scores)
    # By year there are so many pairs of rows that only the claims are listed.
    significant = [] if plan.table.has_years else select_significant(differences)
    summary, remarks = describe_intervals(differences), [*_remarks(plan)]
    claims = [line for claim in plan.table.claims if (line := claim_sentence(claim, scores))]
    pretrained, scored, losses = _tabulate_pretraining(plan, seen), _tabulate_scores(plan, scores), _about_losses(plan)
    lines = [plan.table.title, "", lead, "", *in_columns(pretrained, indent=""), losses, ""]
    lines += [
        *in_columns(scored, indent=""),
        *remarks,
        "",
        *map(str, significant),
        summary,
        *(["", *claims] if claims else []),
    ]
    text = "\n".join(lines) + "\n"
    write_text(plan.out / "table.txt", text)
    pictures = timelines(plan.table, scores) if plan.table.has_years else [*_strips(scores)]
    sections = [
        Section(heading="Scores", parts=[_table(scored), *map(paragraph, remarks), *pictures]),
        gains_section(scores),
        Section(heading="What shows", parts=[paragraph(summary), *_differences(significant)]),
        Section(heading="Claims of the papers, at this size", parts=[*map(paragraph, claims)]),
        Section(heading="Pretraining", parts=[_table(pretrained), paragraph(losses)]),
        Section(heading="How to read this", parts=[paragraph(_describe_protocol(protocol))]),
        Section(heading="Settings of pretraining", parts=[code(json.dumps(protocol["pretraining"], indent=1))]),
    ]
    write_report(plan.out / REPORT, plan.table.title, [section for section in sections if section.parts], lead=lead)
    return f"{text}The report is {plan.out / REPORT}.\n"


def _describe_protocol(protocol: Mapping[str, Any]) -> str:
    timed = any(settings.get("minutes") for settings in protocol["pretraining"].values())
    return (SAME_MINUTES if timed else OWN_STEPS) + PROTOCOL_SAID


def _about_losses(plan: TablePlan) -> str:
    lines = [LOSSES]
    if plan.table.masks:
        lines.append(f"{SHARED_MASKS}: of all encoders on the held-out text and masks of '{plan.table.masks}'.")
    if any(vector_schema(recipe.read(row.recipe)) for row in plan.table.rows):
        lines.append(ROUNDS)
    return " ".join(lines)


def _runs(plan: TablePlan, row: TableRow) -> list[FamilyRun]:
    """Return the pretraining runs of a row, one per seed; only runs that have ended."""
    runs = []
    for seed in range(plan.scale.seeds):
        folder = plan.encoders.folder(row, seed, plan.out)
        facts = RunFolder(folder).facts
        if "finished" in facts:
            last = {name: value for line in read_lines(folder / NAME) for name, value in line.items()}
            runs.append(FamilyRun(parameters=facts["finished"]["parameters"], last=last))
    return runs


def _tabulate_pretraining(plan: TablePlan, seen: Mapping[str, Sequence[FamilyRun]]) -> list[list[str]]:
    """Return the cells of the table on pretraining, a row per recipe; means over the seeds."""
    shared = [f"loss on the {SHARED_MASKS}"] if plan.table.masks else []
    rows = [["recipe", "parameters", "seconds in steps", "steps", "tokens", "held-out loss", *shared]]
    for row in plan.table.rows:
        name, runs = row.name, seen[row.name]
        if not runs:
            rows.append([name, *["-"] * (len(rows[0]) - 1)])
            continue
        seconds, steps, tokens = (
            statistics.fmean(run.last[key] for run in runs) for key in ("seconds", "step", "tokens")
        )
        losses = [
            f"{objective} {format_mean([run.held_out[objective] for run in runs], scale=1, digits=3)}"
            for objective in runs[0].held_out
        ]
        counts = [f"{value:,.0f}" for value in (seconds, steps, tokens)]
        masked = [format_mean([score.loss for score in mask_scores(plan, row)], scale=1, digits=3)] if shared else []
        rows.append([name, f"{runs[0].parameters:,}", *counts, ", ".join(losses), *masked])
    return rows


def _tabulate_scores(plan: TablePlan, scores: Scores) -> list[list[str]]:
    """Return the cells of the table of scores: mean and interval over the seeds, marked if a collapsed run is
    included."""
    names = list(dict.fromkeys(name for column in plan.columns for name in column.measured))
    names += [test.name for test in plan.word_tests] + [SHARED_MASKS] * bool(plan.table.masks)
    starred = {name for column in plan.columns if column.name in plan.split_off for name in column.measured}
    rows = [["recipe", *(f"{name}*" if name in starred else name for name in names)]]
    for row in plan.table.rows:
        marks = row_marks(plan, row.name)
        column_scores = scores[row.name]
        rows.append(
            [
                row.name,
                *(
                    format_mean(column_scores.get(name, [])) + marks.get(name, "") * (name in column_scores)
                    for name in names
                ),
            ]
        )
    return rows


def _remarks(plan: TablePlan) -> Iterator[str]:
    trials = [trial for row in plan.table.rows for column in plan.columns for trial in plan.trials_of(row, column)]
    if (ended := sum(map(is_finished, trials))) < len(trials):
        yield f"So far {ended:,} of {len(trials):,} fine-tunings have ended. The same command goes on."
    for name, score in word_scores(plan, plan.table.rows[0], 0).items():
        yield f"{name}: {score.used:,} of {score.given:,} rows, whose words are one piece each."
    if plan.split_off:
        yield f"*: a fifth of the rows was split off for development ({', '.join(plan.split_off)})."
    if plan.whole:
        yield plan.whole
    for line in describe_collapses(plan):
        yield f"Collapsed: {line}. {MARK}: a figure that counts a collapsed run."
    yield from _times(plan)


def _times(plan: TablePlan) -> Iterator[str]:
    """Yield a sentence for each pretraining whose duration is unknown or deviates from --minutes by more than OFF."""
    for row, seed in itertools.product(plan.table.rows, range(plan.scale.seeds)):
        facts = RunFolder(plan.encoders.folder(row, seed, plan.out)).facts
        ended = facts.get("finished", {})
        if "budget" not in facts or "wall_seconds" not in ended:
            continue
        taken, planned = ended["wall_seconds"], 60 * facts["budget"]["minutes"]
        if ended["resumed"]:
            yield f"Time: {row.name}, seed {seed}, was stopped on the way and resumed, so its seconds are not known."
        elif abs(taken - planned) > OFF * planned:
            yield f"Time: {row.name}, seed {seed}, took {taken:,.1f} s instead of {planned:,.0f} s."


def _strips(scores: Scores) -> Iterator[str]:
    """Yield a strip plot for each column: a row per recipe, a dot per seed."""
    for name in dict.fromkeys(name for column_scores in scores.values() for name in column_scores):
        strips = [
            Strip(
                name=row,
                dots=[Dot(value=value, label=f"seed {seed}") for seed, value in enumerate(column_scores.get(name, []))],
            )
            for row, column_scores in scores.items()
        ]
        yield strip_plot(strips, title=f"{name}, a dot a seed; the line is the median")


def _differences(comparisons: Sequence[RowComparison]) -> Iterator[str]:
    """Yield a table of the differences whose intervals exclude 0; nothing if there are none."""
    if comparisons:
        head = ("data set", "above", "below", "difference in points (95% interval)")
        yield table(
            [
                (comparison.column, comparison.above, comparison.below, comparison.interval)
                for comparison in comparisons
            ],
            head=head,
        )


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    return table(body, head=head)
