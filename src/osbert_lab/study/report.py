"""The report of a comparison: every run in a table, the numbers over them, and where they lie, as a strip plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osbert import recipe
from osbert.reports.page import Link, Section, code, paragraph, table, write_report
from osbert.runs.events import Epoch
from osbert_lab.strips import Dot, Strip, strip_plot
from osbert_lab.study.runner import TrialResult
from osbert_lab.study.summaries import FEWEST, Summary, summaries


@dataclass(frozen=True)
class Wording:
    """What the report of a kind of study says in its own words; `lead` is given the kept run's name and the score's."""

    title: str
    unit: str
    model: str
    lead: str
    explanation: str


COMPARED = Wording(
    title="compared",
    unit="run",
    model="best run",
    lead="The best is {kept}: its weights are this folder's model. {criterion} over the runs with its settings",
    explanation="Each run is reported with the scores of its weights on the development rows, by which the settings, "
    "the run and, but with --keep last or few of these rows, the epoch were chosen as well: these scores flatter a "
    "little, the more runs there are. For a number to publish, score the chosen run on rows that had no part in this: "
    "osbert evaluate.",
)
CROSS_VALIDATED = Wording(
    title="cross-validated",
    unit="fold",
    model="model",
    lead="{criterion} over the folds",
    explanation="Each row is scored by a run that has not seen it. If the best epoch of a fold is "
    "kept, it is chosen on these very rows, which flatters a little; the last one, kept by default where development "
    "rows are few, is not. The folds share most of their training rows, "
    "so that the interval is somewhat too narrow (Nadeau and Bengio 2003). The model of this folder comes from one "
    "more run, which is what the same command makes without --folds; trials/whole is its folder.",
)


def study_report(
    folder: Path,
    wording: Wording,
    *,
    name: str,
    criterion: str,
    results: Sequence[TrialResult],
    model_result: TrialResult,
) -> Path:
    """Write report.html into the folder of a study of the task `name`, of which `model_result` is the folder's model.

    Returns its path.
    """
    unit = wording.unit
    groups = _groups(results)
    score_names = [key for key in model_result.metrics if "/" not in key]
    numbers = {
        group: summaries([result.metrics for result in group_results]) for group, group_results in groups.items()
    }
    # The model of a cross-validation is none of its folds, which all have the same settings.
    [overall] = [
        group_summaries
        for group, group_summaries in numbers.items()
        if group == _group(model_result) or model_result not in results
    ]
    settings = code(recipe.dump(recipe.read(folder / "recipe.toml")))
    sections = [
        Section(
            heading=f"Where the {unit}s lie: {criterion}", parts=[_strips(groups, results, criterion, model_result)]
        ),
        Section(heading=f"Over the {unit}s", parts=[_summaries(numbers, score_names), paragraph(_explain(results))]),
        Section(heading=f"Every {unit}", parts=[_runs(results, score_names, model_result)]),
        Section(heading="How to read this", parts=[paragraph(wording.explanation)]),
        Section(heading=f"Settings of the {wording.model}", parts=[settings]),
    ]
    lead = wording.lead.format(kept=model_result.trial.name, criterion=criterion[0].upper() + criterion[1:])
    summary = f"{len(results)} {unit}s. {lead}: {overall[criterion].describe()}."
    return write_report(folder / "report.html", f"Fine-tuning, {wording.title}: {name}", sections, lead=summary)


def _group(result: TrialResult) -> str:
    settings = result.trial.settings
    return str(settings.describe() or f"all {settings.name or 'seeds'}")


def _groups(results: Sequence[TrialResult]) -> dict[str, list[TrialResult]]:
    groups: dict[str, list[TrialResult]] = {}
    for result in results:
        if result.counts:
            groups.setdefault(_group(result), []).append(result)
    return groups


def _strips(
    groups: Mapping[str, Sequence[TrialResult]], results: Sequence[TrialResult], criterion: str, best: TrialResult
) -> str:
    strips = []
    for name in groups:
        group_results = [result for result in results if result.best and _group(result) == name]
        dots = [
            Dot(
                value=result.metrics[criterion],
                label=result.trial.name,
                look="best" if result == best else "dot" if result.counts else "hollow",
            )
            for result in group_results
        ]
        strips.append(Strip(name=name, dots=dots))
    return strip_plot(strips, title=f"{criterion}, a dot a run; the line is the median, hollow dots do not count")


def _summaries(numbers: Mapping[str, Mapping[str, Summary]], score_names: Sequence[str]) -> str:
    head = ("settings", "score", "runs", "median", "mean", "deviation", "lowest", "highest", "95% interval of the mean")
    rows = []
    for group, group_summaries in numbers.items():
        for name in score_names:
            summary = group_summaries[name]
            figures = (summary.median, summary.mean, summary.deviation, summary.lowest, summary.highest)
            cells = [f"{value:.4f}" if value == value else "" for value in figures]
            interval = f"{summary.interval[0]:.4f} to {summary.interval[1]:.4f}" if summary.count >= FEWEST else ""
            rows.append((group, name, summary.count, *cells, interval))
    return table(rows, head=head)


def _explain(results: Sequence[TrialResult]) -> str:
    sentences = ["Deviation: the standard deviation over runs (n - 1). Interval: Student's t, from three runs on."]
    replaced = [result for result in results if result.replaced]
    if replaced:
        names = ", ".join(result.trial.folder.name for result in replaced)
        sentences.append(f"Collapsed runs are not among them: {names}; each was run once more with another seed.")
    failed = [result.trial.folder.name for result in results if not result.best]
    if failed:
        sentences.append(f"Without a score, for their losses became infinite: {', '.join(failed)}.")
    return " ".join(sentences)


def _runs(results: Sequence[TrialResult], score_names: Sequence[str], best: TrialResult) -> str:
    rows = []
    for result in results:
        scores = [f"{result.metrics[name]:.4f}" if result.best else "" for name in score_names]
        remarks = ["best: this folder's model" if result == best else "", remark(result)]
        name = Link(f"trials/{result.trial.folder.name}/report.html", result.trial.name)
        epoch = Epoch(**result.best).place if result.best else ""
        rows.append((name, epoch, *scores, "; ".join(filter(None, remarks))))
    return table(rows, head=("run", "epoch", *score_names, ""))


def remark(result: TrialResult) -> str:
    """Return the remark on a run, "" for none."""
    if not result.best:
        return "its losses became infinite"
    parts = [f"replaces {result.trial.replaces}"] if result.trial.replaces else []
    if result.collapsed:
        parts.append(f"collapsed: every development row is {result.collapsed}")
    return "; ".join([*parts, *(["not counted"] if result.replaced else [])])
