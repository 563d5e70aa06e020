"""One runner for several runs: seeds, searches, suites of data sets, tables of papers.

A trial is a run folder, so a stopped study resumes: finished trials are only read. A trial that gives every development
row the same answer has collapsed: its folder is kept, and the trial runs once more with another seed. The second run
counts however it ends.
"""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from osbert.errors import Problems, UserError
from osbert.runs.contract import Watch, ignore
from osbert.runs.events import RunEnd
from osbert.training.run_folder import RunFolder

RESTART = 1000
"""Added to the seed of a collapsed run for the run that replaces it."""

Returned = TypeVar("Returned")


@dataclass(frozen=True, kw_only=True)
class StudyTrial:
    """One run of a study, with its display name and its run folder.

    `settings`: the argument for the study's `work`. `after`: the name of a trial that must end first. `again`: the
    trial that replaces it if it collapses. `replaces`: the folder name of the collapsed trial. `kind`: trials of one
    kind take about the same time.
    """

    reported: ClassVar[tuple[str, ...]] = ("name", "folder", "seed", "replaces")

    name: str
    folder: Path
    settings: Any = None
    seed: int = 0
    after: str = ""
    again: StudyTrial | None = None
    replaces: str = ""
    kind: str = ""

    def or_else(self, again: StudyTrial) -> StudyTrial:
        """Return the trial with a replacement that is run if it collapses."""
        return dataclasses.replace(self, again=dataclasses.replace(again, replaces=self.folder.name))


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The result of a trial: its `best` epoch from run.json, {} if it failed. `replaced`: its replacement counts."""

    trial: StudyTrial
    finished: bool
    best: Mapping[str, Any] = field(default_factory=dict)
    replaced: bool = False

    @property
    def metrics(self) -> Mapping[str, float]:
        """The scores of the best epoch."""
        return self.best.get("metrics", {})

    @property
    def collapsed(self) -> str:
        """The one prediction of its best epoch for all development rows, "" if they differ."""
        return str(self.best.get("collapsed", ""))

    @property
    def counts(self) -> bool:
        """Whether it counts for medians and means."""
        return bool(self.best) and not self.replaced


def read_result(trial: StudyTrial) -> TrialResult:
    """Return the result of a trial from its run folder."""
    finished = RunFolder(trial.folder).facts.get("finished")
    return TrialResult(trial=trial, finished=finished is not None, best=(finished or {}).get("best", {}))


def read_results(trial: StudyTrial) -> list[TrialResult]:
    """Return the result of a trial and, if it collapsed, that of its replacement; the last one counts."""
    result = read_result(trial)
    if not (result.collapsed and trial.again):
        return [result]
    return [dataclasses.replace(result, replaced=True), read_result(trial.again)]


@dataclass(frozen=True)
class TrialBegin:
    """Event: the `number`th of `total` trials begins; `total` is 0 if it is not known."""

    trial: StudyTrial
    number: int
    total: int

    def __str__(self) -> str:
        """Return a heading for the console, such as "seed-1 (2 of 3)"."""
        return f"\n{self.trial.name}" + (f" ({self.number} of {self.total})" if self.total else "")


@dataclass(frozen=True)
class TrialEnd(RunEnd):
    """Event: a trial ended, the `number`th of `total` unfinished ones. `left`: estimated seconds for the rest."""

    result: TrialResult
    number: int
    total: int
    left: float

    def __str__(self) -> str:
        """Return a line for the console: the outcome, and the minutes left for the others."""
        outcome = "done" if self.result.finished else "not done"
        return f"[{self.number}/{self.total}] {self.result.trial.name}: {outcome}  ({self.left / 60:.0f} min left)"


@dataclass(frozen=True)
class TrialRestart:
    """Event: a trial has collapsed, and its replacement begins."""

    trial: StudyTrial
    again: StudyTrial

    def __str__(self) -> str:
        """Return a line on both."""
        return f"{self.trial.name} has collapsed and is not counted; in its place: {self.again.name}"


def is_finished(trial: StudyTrial) -> bool:
    """Return whether a trial is finished and need not be run."""
    return RunFolder(trial.folder).finished


class CallingThread(Executor):
    """Runs what is submitted at once, in the thread that submits it; an error comes out of `submit`."""

    def submit(self, work: Callable[..., Returned], /, *arguments: Any, **named: Any) -> Future[Returned]:
        """Return the outcome of `work(*arguments)`."""
        future: Future[Returned] = Future()
        future.set_result(work(*arguments, **named))
        return future


@dataclass(kw_only=True)
class Study:
    """Runs trials by `work(trial)`, which fills the run folder, in this thread or in `threads` threads.

    `resumed(trial)`: whether the trial need not be run. `problems`: collects the UserErrors of trials while the others
    continue; without it, an error ends the study. `counted`: whether all trials are known beforehand, so that events
    have their number. `stop()`: ends running trials if the study is interrupted.
    """

    work: Callable[[StudyTrial], object]
    threads: int = 0
    counted: bool = True
    problems: Problems | None = None
    resumed: Callable[[StudyTrial], bool] = is_finished
    stop: Callable[[], object] = lambda: None
    watch: Watch = ignore

    def __post_init__(self) -> None:
        """Set all counters to 0."""
        self._lock = threading.RLock()
        self._begun = self._trials = self._ended = self._unfinished = 0
        self._open: Counter[str] = Counter()
        self._seconds: dict[str, list[float]] = {}
        self._stopping = False

    def run(self, trials: Sequence[StudyTrial]) -> list[TrialResult]:
        """Run the unfinished trials, in order as far as possible; return the results of all.

        The result of a collapsed trial is followed by that of its replacement. On an error or Ctrl-C, running trials
        are stopped and no other begins.
        """
        if self.counted:
            self._trials += len(trials)
            for trial in trials:
                self._expect(trial)
        futures: dict[str, Future[list[TrialResult]]] = {}
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="trial") if self.threads else CallingThread()
        with pool:
            try:
                for trial in trials:
                    futures[trial.name] = pool.submit(self._with_restart, trial, futures.get(trial.after))
                return [result for future in futures.values() for result in future.result()]
            except BaseException:
                self._stopping = True
                self.stop()
                raise

    def _with_restart(self, trial: StudyTrial, before: Future[list[TrialResult]] | None) -> list[TrialResult]:
        # Trials are begun in order, so what a trial waits for is at work already: no thread waits for one not begun.
        if before is not None and not before.result()[-1].finished:
            return [self._end(trial)]
        result = self._run(trial)
        if result.collapsed and trial.again and not self._stopping:
            with self._lock:
                self._trials += self.counted
                if self.counted:
                    self._expect(trial.again)
                self.watch(TrialRestart(trial, trial.again))
            self._run(trial.again)
        return read_results(trial)

    def _run(self, trial: StudyTrial) -> TrialResult:
        if self._stopping:
            return read_result(trial)
        with self._lock:
            self._begun += 1
            self.watch(TrialBegin(trial, self._begun, self._trials))
        if self.resumed(trial):
            return read_result(trial)
        started = time.monotonic()
        try:
            self.work(trial)
        except UserError as error:
            if self.problems is None:
                raise
            with self._lock:
                self.problems.add_from(trial.name, error)
        else:
            with self._lock:
                self._seconds.setdefault(trial.kind, []).append(time.monotonic() - started)
        return self._end(trial)

    def _expect(self, trial: StudyTrial) -> None:
        if not self.resumed(trial):
            self._unfinished += 1
            self._open[trial.kind] += 1

    def _left(self) -> float:
        """Return the estimated seconds for the remaining trials, by the mean time of their kind."""
        every = [seconds for durations in self._seconds.values() for seconds in durations]
        if not every:
            return 0.0
        # The mean time of a kind's finished trials; for a kind without any, the mean over all.
        each = {kind: statistics.fmean(self._seconds.get(kind, every)) for kind in self._open}
        return sum(max(0, count) * each[kind] for kind, count in self._open.items()) / max(1, self.threads)

    def _end(self, trial: StudyTrial) -> TrialResult:
        result = read_result(trial)
        if self._stopping:
            return result
        with self._lock:
            self._ended += 1
            self._open[trial.kind] -= 1
            self.watch(TrialEnd(result, self._ended, self._unfinished, self._left()))
        return result
