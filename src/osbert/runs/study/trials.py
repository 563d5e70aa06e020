"""Several runs of one fine-tuning, compared: each a run folder of its own in trials/, finished ones not run again.

A run that has collapsed to one answer is kept, named, and run once more with another seed. Settings are chosen by their
mean over the seeds, and of the chosen settings the best run becomes the folder's model.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from osbert import recipe
from osbert.errors import UserError
from osbert.evaluation.compare import RESTART, sortable, summaries
from osbert.files import replace_file, sync
from osbert.models.adapting.features import VECTORS
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.finetune import train as finetune_train
from osbert.runs.finetune.events import Epoch, row
from osbert.runs.finetune.plan import FinetunePlan
from osbert.runs.finetune.records import Splits
from osbert.runs.finetune.rows import FinetuneRows
from osbert.runs.finetune.run import tidy
from osbert.runs.study.report import trials_report
from osbert.runs.study.search import Candidate, Candidates, Comparison, Tried, candidates
from osbert.terminal import one_line
from osbert.training.interruption import Interruption
from osbert.training.run_folder import FACTS, RECIPE, RunFolder

TRIALS = "trials"
"""The folder of the runs, in the folder of the comparison."""
CONFIG = "config.json"
"""The file without which a folder holds no model."""
OWN = (FACTS, RECIPE, "report.html", finetune_train.REMARKS)
"""Files that the folder of a comparison has of its own; the others are the best run's."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of a comparison: its settings and its seed, and the name of the collapsed run that it stands in for."""

    candidate: Candidate
    seed: int
    replaces: str = ""

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return "-".join(filter(None, (self.candidate.name, f"seed-{self.seed}")))

    def describe(self) -> str:
        """Return its settings and its seed in words."""
        return ", ".join(filter(None, (self.candidate.describe(), f"seed {self.seed}")))

    def plan(self, plan: FinetunePlan) -> FinetunePlan:
        """Return the settings of this one run."""
        values: dict[str, dict[str, float]] = {"training": {"seed": self.seed}, "optimizer": {}}
        for key, value in self.candidate.settings.items():
            table, _, leaf = key.partition(".")
            values[table][leaf] = value
        return dataclasses.replace(
            plan,
            training=dataclasses.replace(plan.training, **values["training"]),
            optimizer=dataclasses.replace(plan.optimizer, **values["optimizer"]),
            comparison=Comparison(),
        )


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a trial ended.

    `best`: its best epoch, None where its losses became infinite. `replaced`: another stands in for it.
    """

    trial: Trial
    best: Epoch | None
    replaced: bool = False

    @property
    def counts(self) -> bool:
        """Return whether it is among the runs that medians and means are taken over."""
        return self.best is not None and not self.replaced

    @property
    def collapsed(self) -> bool:
        """Return whether its best epoch gives all development rows one answer."""
        return bool(self.best and self.best.collapsed)

    def remark(self) -> str:
        """Return what is to be said of it, "" for nothing."""
        if self.best is None:
            return "its losses became infinite"
        parts = [f"stands in for {self.trial.replaces}"] if self.trial.replaces else []
        if self.best.collapsed:
            parts.append(f"collapsed: every development row is {self.best.collapsed}")
        return "; ".join([*parts, *(["not counted"] if self.replaced else [])])


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Runs the trials of a comparison on the same rows."""

    plan: FinetunePlan
    rows: FinetuneRows
    out: Path
    watch: Watch = ignore
    wish: Interruption | None = None

    def run(self, wanted: Candidates) -> list[Result]:
        """Return the results of all trials, of which those finished before are only read."""
        first, seeds = self.plan.training.seed, max(1, self.plan.comparison.seeds)
        tried: list[Tried] = []
        results: list[Result] = []
        for candidate in wanted.after(tried):
            found = [
                result
                for seed in range(first, first + seeds)
                for result in self.restarted(Trial(candidate=candidate, seed=seed))
            ]
            results += found
            tried.append(Tried(candidate=candidate, score=mean(found, self.rows.criterion)))
        return results

    def restarted(self, trial: Trial) -> Iterator[Result]:
        """Yield a trial's result and, if it has collapsed, that of one in its place, which counts however it ends."""
        result = self.one(trial)
        yield dataclasses.replace(result, replaced=result.collapsed)
        if result.collapsed:
            again = dataclasses.replace(trial, seed=trial.seed + RESTART, replaces=trial.name)
            self._say(f"{trial.describe()} has collapsed and is not counted; in its place: {again.describe()}")
            yield self.one(again)

    def one(self, trial: Trial) -> Result:
        """Run a trial, unless it has come to its end before with the same settings.

        They can be others only where all runs have failed (`RunFolder.begin`): then none of them counts any more.
        """
        folder, plan = RunFolder(self.out / TRIALS / trial.name), trial.plan(self.plan)
        self._say(f"\n{trial.describe()}")
        if folder.facts and (changes := folder.changes(plan.table())):
            self._say(f"it failed before and begins anew: {'; '.join(changes)}")
            shutil.rmtree(folder.folder)
        if folder.finished:
            best = Epoch(**folder.facts["finished"]["best"])
            self._say(f"finished before: {row(best)}")
            return Result(trial=trial, best=best)
        try:
            if "failed" not in folder.facts:
                model = finetune_train.start(plan)
                best = finetune_train.train(plan, self.rows, model, folder.folder, self.watch, self.wish)
                return Result(trial=trial, best=best)
        except UserError as error:
            if "failed" not in folder.facts:
                raise
            self._say(str(error))
            tidy(folder.folder)
        self._say("this run counts as failed; the others go on")
        return Result(trial=trial, best=None)

    def _say(self, text: str) -> None:
        self.watch(Notice(text))


def compare(
    plan: FinetunePlan,
    records: Sequence[Splits],
    out: Path,
    watch: Watch = ignore,
    wish: Interruption | None = None,
) -> None:
    """Run a comparison to its end, and write the folder of the best run and the report."""
    wanted, asked = plan.comparison, recipe.as_table(plan.comparison)
    training = plan.training
    settings = candidates(wanted, tuning=training.tuning, seed=training.seed, folder=out / TRIALS)
    model = finetune_train.start(plan)
    plan = dataclasses.replace(plan, opening=plan.opening.again)
    finetune_train.introduce(plan, model, watch)
    rows = finetune_train.lay_out(plan, records, model, watch)
    del model  # every trial reads its own
    with finetune_train.writing(out):
        folder = finetune_train.opened(plan, rows, out)
        finetune_train.write_remarks(rows.remarks, out, watch)
        if not folder.finished or folder.facts["finished"]["comparison"] != asked:
            kept = dataclasses.replace(rows, remarks=(), kept=out / TRIALS)
            trials = Trials(plan=plan, rows=kept, out=out, watch=watch, wish=wish)
            finish(trials, trials.run(settings), folder)
        for path in (out / TRIALS).glob(VECTORS):
            path.unlink()
        ended = folder.facts["finished"]
    watch(Notice(f"best of all: {ended['trial']}"))


def finish(trials: Trials, results: Sequence[Result], folder: RunFolder) -> None:
    """Write the folder of a comparison whose trials have ended: the best one's files, the report, the facts.

    Raises UserError when all have failed, and notes it: the folder may then go on with other settings.
    """
    out, criterion, plan = trials.out, trials.rows.criterion, trials.plan
    if not any(result.counts for result in results):
        folder.fail(0)
        raise UserError(
            "No run came to its end: their losses became infinite. The same command with a lower --learning-rate, or "
            "another --seed or --precision, tries again in this folder."
        )
    best = chosen(results, criterion)
    own = out / TRIALS / best.trial.name
    asked = recipe.as_table(plan.comparison)
    adopt(own, folder, recipe.read(own / RECIPE) | {"comparison": asked})
    trials_report(out, name=plan.name, criterion=criterion, results=results, best=best)
    folder.finish({**RunFolder(own).facts["finished"], "trial": best.trial.name, "comparison": asked})
    for line in lines(results):
        trials.watch(Notice(line))


def chosen(results: Sequence[Result], criterion: str) -> Result:
    """Return the best run of the settings whose runs are best in the mean, a collapsed one only where all are.

    One run at least has come to its end.
    """
    ended = [result for result in results if result.counts]
    settings = max((one.trial.candidate for one in ended), key=lambda one: rank(of(ended, one), criterion))
    return max(of(ended, settings), key=lambda one: (not one.collapsed, rank([one], criterion)))


def of(results: Sequence[Result], candidate: Candidate) -> list[Result]:
    """Return the results of a candidate."""
    return [result for result in results if result.trial.candidate == candidate]


def mean(results: Sequence[Result], criterion: str) -> float:
    """Return the mean of the criterion over the results that count, NaN without any."""
    scores = [result.best.metrics[criterion] for result in results if result.counts and result.best]
    return statistics.fmean(scores) if scores else math.nan


def rank(results: Sequence[Result], criterion: str) -> float:
    """Return the mean of the criterion, the lowest number where it is not one."""
    return sortable(mean(results, criterion))


def adopt(trial: Path, folder: RunFolder, settings: recipe.Table) -> None:
    """Copy the files of a finished trial, apart from what tells of the run, and write the recipe, `settings`.

    Without a config.json a folder is no model to any reader. So that file goes first and comes last: a kill in between
    leaves nothing that could be taken for a model, and a run that is not finished.
    """
    out = folder.folder
    folder.reopen()
    (out / CONFIG).unlink(missing_ok=True)
    sync(out)
    files = [path for path in sorted(trial.iterdir()) if path.is_file() and not path.name.startswith(".")]
    for path in files:
        if path.name not in (*OWN, CONFIG):
            copy(path, out)
    folder.write_recipe(settings)
    copy(trial / CONFIG, out)


def copy(path: Path, out: Path) -> None:
    """Copy a file into a folder, whole or not at all."""
    replace_file(out / path.name, lambda aside: shutil.copyfile(path, aside))


def lines(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for every run, and for each candidate with several the median, mean and deviation of all metrics."""
    yield f"\n{len(results)} runs, development rows, best epoch of each:"
    for result in results:
        scores = row(result.best).partition("dev ")[2] if result.best else ""
        remark = result.remark()
        yield f"  {result.trial.describe()}  {scores}{f'  ({one_line(remark)})' if remark else ''}"
    for candidate in dict.fromkeys(candidate.name for candidate in (one.trial.candidate for one in results)):
        counted = [one for one in results if one.counts and one.trial.candidate.name == candidate]
        if len(counted) < 2:
            continue
        words = counted[0].trial.candidate.describe()
        yield f"{words or 'over the seeds'}, {len(counted)} runs:"
        for name, summary in summaries([one.best.metrics for one in counted if one.best]).items():
            if "/" not in name:
                yield f"  {name}: {summary.describe()}"
