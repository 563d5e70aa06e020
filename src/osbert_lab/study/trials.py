"""Several runs of one fine-tuning, compared: each a run folder of its own in trials/, finished ones not run again.

Settings are chosen by their mean over the seeds, and of the chosen settings the best run becomes the folder's model. A
run that has collapsed to one answer is chosen only where all have.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from osbert import recipe
from osbert.errors import UserError
from osbert.files import disk_needed, replace_file, sync
from osbert.lock import hold_lock
from osbert.models.heads.features import VECTORS
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.events import Epoch, format_epoch
from osbert.runs.finetune import finetune as steps
from osbert.runs.finetune.plan import FinetunePlan
from osbert.runs.finetune.records import REMARKS, Splits
from osbert.runs.finetune.rows import FinetuneRows
from osbert.runs.finetune.settings import Comparison
from osbert.runs.finetune.training_loop import tidy
from osbert.terminal import one_line
from osbert.training.interruption import Interruption
from osbert.training.run_folder import FACTS, RECIPE, RunFolder
from osbert.training.tracking import TRACKERS
from osbert_lab.study.report import COMPARED, remark, study_report
from osbert_lab.study.runner import RESTART, Study, StudyTrial, TrialResult
from osbert_lab.study.search import Candidates, SettingsScore, TrialSettings, candidates
from osbert_lab.study.summaries import sortable, summaries

TRIALS = "trials"
"""The folder of the runs, in the folder of the comparison."""
CONFIG = "config.json"
"""The file without which a folder holds no model."""
OWN = (FACTS, RECIPE, TRACKERS, "report.html", REMARKS)
"""Files that the folder of a comparison has of its own; the others are the best run's."""


def compare(
    plan: FinetunePlan,
    records: Sequence[Splits],
    out: Path,
    watch: Watch = ignore,
    wish: Interruption | None = None,
) -> None:
    """Run a comparison to its end, and write the folder of the best run and the report.

    Raises UserError when every run has failed, and notes it: the folder may then go on with other settings.
    """
    wanted, comparison_table = plan.comparison, plan.comparison.table()
    training = plan.training
    settings = candidates(wanted, tuning=training.tuning, seed=training.seed, folder=out / TRIALS)
    with begin_trials(plan, records, out, watch) as (plan, rows, folder):
        if not folder.finished or folder.facts["finished"]["comparison"] != comparison_table:
            shared = dataclasses.replace(rows, remarks=(), vector_folder=out / TRIALS)
            work = TrialWork(plan=plan, rows=lambda trial: shared, watch=watch, wish=wish)
            results = run_trials(work, settings, rows.criterion, out / TRIALS)
            finish(plan, rows.criterion, folder, results)
            for line in describe_results(results):
                watch(Notice(line))
        for path in (out / TRIALS).glob(VECTORS):
            path.unlink()
    watch(Notice(f"best of all: {folder.facts['finished']['trial']}"))


@contextmanager
def begin_trials(
    plan: FinetunePlan, records: Sequence[Splits], out: Path, watch: Watch
) -> Iterator[tuple[FinetunePlan, FinetuneRows, RunFolder]]:
    """Encode the rows and hold the folder of several runs; yield the plan of each run, the rows and the folder."""
    model = steps.start(plan)
    plan = dataclasses.replace(plan, opening=plan.opening.again)  # each trial opens the encoder anew
    steps.introduce(plan, model, watch)
    rows = steps.lay_out(plan, records, model, watch)
    del model  # one encoder is in memory at a time
    with disk_needed(out), hold_lock(out):
        folder = steps.begin_folder(plan, rows, out)
        steps.write_remarks(rows.remarks, out)
        yield plan, rows, folder


@dataclass(frozen=True, kw_only=True)
class TrialWork:
    """Runs trials of a fine-tuning, each in its folder; `rows` returns what a trial learns from and is scored on."""

    plan: FinetunePlan
    rows: Callable[[StudyTrial], FinetuneRows]
    watch: Watch = ignore
    wish: Interruption | None = None

    def study(self) -> Study:
        """Return what runs the trials that are not finished."""
        return Study(work=self.train, resumed=self.check_finished, counted=False, watch=self.watch)

    def check_finished(self, trial: StudyTrial) -> bool:
        """Return whether a trial has come to its end before with the same settings.

        They can be others only where all runs have failed (`RunFolder.begin`): then none of them counts any more.
        """
        folder, plan = RunFolder(trial.folder), trial_plan(self.plan, trial)
        if folder.facts and (changes := folder.changes(plan.table(), plan.defaults())):
            self.watch(Notice(f"it failed before and begins anew: {'; '.join(changes)}"))
            shutil.rmtree(trial.folder)
        if folder.finished:
            self.watch(Notice(f"already finished: {format_epoch(Epoch(**folder.facts['finished']['best']))}"))
        return folder.finished

    def train(self, trial: StudyTrial) -> None:
        """Run a trial; one whose losses became infinite has no score, and the others go on."""
        folder = RunFolder(trial.folder)
        if "failed" not in folder.facts:
            try:
                planned = trial_plan(self.plan, trial)
                model = steps.start(planned)
                steps.train(planned, self.rows(trial), model, trial.folder, self.watch, self.wish)
                return
            except UserError as error:
                if "failed" not in folder.facts:
                    raise
                self.watch(Notice(str(error)))
                tidy(trial.folder)
        self.watch(Notice("this run counts as failed; the others go on"))


def run_trials(work: TrialWork, wanted: Candidates, criterion: str, trials: Path) -> list[TrialResult]:
    """Return the results of all trials, in the folder `trials`; those finished before are only read."""
    study, plan = work.study(), work.plan
    first, seeds = plan.training.seed, max(1, plan.comparison.seeds)
    tried: list[SettingsScore] = []
    results: list[TrialResult] = []
    for settings in wanted.after(tried):
        seed_results = study.run([trial_of(settings, seed, trials) for seed in range(first, first + seeds)])
        results += seed_results
        tried.append(SettingsScore(settings=settings, score=mean(seed_results, criterion)))
    return results


def trial_of(settings: TrialSettings, seed: int, folder: Path) -> StudyTrial:
    """Return the run of some settings with a seed, and that in its place."""

    def make_trial(seed: int) -> StudyTrial:
        name = ", ".join(filter(None, (settings.describe(), f"seed {seed}")))
        folder_name = "-".join(filter(None, (settings.name, f"seed-{seed}")))
        return StudyTrial(name=name, folder=folder / folder_name, settings=settings, seed=seed)

    return make_trial(seed).or_else(make_trial(seed + RESTART))


def trial_plan(plan: FinetunePlan, trial: StudyTrial) -> FinetunePlan:
    """Return the settings of one run of a comparison."""
    return dataclasses.replace(
        plan.replace_settings({"training.seed": trial.seed, **trial.settings.settings}), comparison=Comparison()
    )


def finish(plan: FinetunePlan, criterion: str, folder: RunFolder, results: Sequence[TrialResult]) -> None:
    """Write the folder of a comparison whose trials have ended: the best one's files, the report, the facts.

    Raises UserError when all have failed, and notes it: the folder may then go on with other settings.
    """
    if not any(result.counts for result in results):
        raise fail(folder)
    best = choose_best(results, criterion)
    best_folder = best.trial.folder
    comparison_table = plan.comparison.table()
    adopt(best_folder, folder, recipe.read(best_folder / RECIPE) | {"comparison": comparison_table})
    study_report(folder.folder, COMPARED, name=plan.name, criterion=criterion, results=results, model_result=best)
    folder.finish(
        {**RunFolder(best_folder).facts["finished"], "trial": best_folder.name, "comparison": comparison_table}
    )


def fail(folder: RunFolder) -> UserError:
    """Record that all runs failed, and return the error."""
    folder.fail(0)
    return UserError(
        "No run came to its end: their losses became infinite. The same command with a lower --learning-rate, or "
        "another --seed or --precision, tries again in this folder.",
        code="training-diverged",
    )


def choose_best(results: Sequence[TrialResult], criterion: str) -> TrialResult:
    """Return the best run of the settings with the best mean; a collapsed run only if all have collapsed.

    At least one run must be finished.
    """
    ended = [result for result in results if result.counts]
    settings = max(
        (result.trial.settings for result in ended), key=lambda candidate: rank(of(ended, candidate), criterion)
    )
    return max(of(ended, settings), key=lambda result: (not result.collapsed, rank([result], criterion)))


def of(results: Sequence[TrialResult], settings: TrialSettings) -> list[TrialResult]:
    """Return the results with these settings."""
    return [result for result in results if result.trial.settings == settings]


def mean(results: Sequence[TrialResult], criterion: str) -> float:
    """Return the mean of the criterion over the results that count; NaN if there are none."""
    scores = [result.metrics[criterion] for result in results if result.counts]
    return statistics.fmean(scores) if scores else math.nan


def rank(results: Sequence[TrialResult], criterion: str) -> float:
    """Return a sort key for the mean of the criterion: NaN sorts lowest."""
    return sortable(mean(results, criterion))


def adopt(trial: Path, folder: RunFolder, settings: recipe.Table) -> None:
    """Copy the files of a finished trial, apart from those that describe the run, and write the recipe, `settings`.

    Every reader needs config.json to recognise a model. So that file is removed first and written last: after a kill in
    between, the folder is not taken for a model or a finished run.
    """
    out = folder.folder
    folder.reopen()
    (out / CONFIG).unlink(missing_ok=True)
    # The removal must be on the disk before any other file changes.
    sync(out)
    files = [path for path in sorted(trial.iterdir()) if path.is_file() and not path.name.startswith(".")]
    for path in files:
        if path.name not in (*OWN, CONFIG):
            copy(path, out)
    folder.write_recipe(settings)
    copy(trial / CONFIG, out)


def copy(path: Path, out: Path) -> None:
    """Copy a file into a folder atomically."""
    replace_file(out / path.name, lambda aside: shutil.copyfile(path, aside))


def describe_results(results: Sequence[TrialResult]) -> Iterator[str]:
    """Yield a line for each run, and for settings with several runs the median, mean and deviation of all metrics."""
    yield f"\n{len(results)} runs, development rows, the kept epoch of each:"
    for result in results:
        scores = format_epoch(Epoch(**result.best)).partition("dev ")[2] if result.best else ""
        remark_text = remark(result)
        yield f"  {result.trial.name}  {scores}{f'  ({one_line(remark_text)})' if remark_text else ''}"
    for settings in dict.fromkeys(result.trial.settings.name for result in results):
        counted = [result for result in results if result.counts and result.trial.settings.name == settings]
        if len(counted) < 2:
            continue
        words = counted[0].trial.settings.describe() or f"over the {settings or 'seeds'}"
        yield f"{words}, {len(counted)} runs:"
        for name, summary in summaries([result.metrics for result in counted]).items():
            if "/" not in name:
                yield f"  {name}: {summary.describe()}"
