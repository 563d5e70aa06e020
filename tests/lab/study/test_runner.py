"""The runner of studies: whatever breaks it off, it goes on to the same results; a collapsed trial is run once more."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from osbert.errors import Problems, UserError
from osbert_lab.study.runner import (
    RESTART,
    Study,
    StudyTrial,
    TrialBegin,
    TrialEnd,
    TrialRestart,
    TrialResult,
    read_results,
)
from refusals import refusal


class Killed(BaseException):
    """Stands for a kill."""


def trials(folder: Path, count: int) -> list[StudyTrial]:
    def one(seed: int) -> StudyTrial:
        return StudyTrial(name=f"seed {seed}", folder=folder / f"seed-{seed}", seed=seed)

    return [one(seed).or_else(one(seed + RESTART)) for seed in range(count)]


def end(trial: StudyTrial, collapsed: bool) -> None:
    trial.folder.mkdir(parents=True, exist_ok=True)
    best = {"metrics": {"accuracy": 1 / (1 + trial.seed)}, "collapsed": "'a'" if collapsed else ""}
    (trial.folder / "run.json").write_text(json.dumps({"finished": {"best": best}}))


def summary(results: list[TrialResult]) -> list[tuple[int, bool, bool]]:
    return [(one.trial.seed, bool(one.collapsed), one.counts) for one in results]


@given(
    count=st.integers(1, 4),
    collapsing=st.sets(st.sampled_from([*range(4), *range(RESTART, RESTART + 4)])),
    kills=st.lists(st.integers(0, 8), max_size=4),
    threads=st.sampled_from([0, 1]),
)
def test_a_study_that_is_killed_after_any_trial_ends_in_the_same_results(
    count: int, collapsing: set[int], kills: list[int], threads: int
) -> None:
    expected: list[tuple[int, bool, bool]] = []
    for seed in range(count):
        expected.append((seed, seed in collapsing, seed not in collapsing))
        if seed in collapsing:
            expected.append((seed + RESTART, seed + RESTART in collapsing, True))
    ran: Counter[int] = Counter()
    left: list[int] = []

    def work(trial: StudyTrial) -> None:
        if left and not left[0]:
            raise Killed
        ran[trial.seed] += 1
        end(trial, trial.seed in collapsing)
        left[:] = [one - 1 for one in left]

    with TemporaryDirectory() as folder:
        listed = trials(Path(folder), count)
        for kill in kills:
            left[:] = [kill]
            try:
                Study(work=work, threads=threads).run(listed)
            except Killed:
                continue
        left.clear()
        assert summary(Study(work=work, threads=threads).run(listed)) == expected
        assert summary([one for trial in listed for one in read_results(trial)]) == expected
    assert ran == Counter(seed for seed, _, _ in expected)  # each once, whatever happened


def test_the_trial_that_is_running_is_reported(tmp_path: Path) -> None:
    seen: list[Any] = []
    first, second = trials(tmp_path, 2)
    end(first, collapsed=True)
    Study(work=lambda trial: end(trial, collapsed=False), watch=seen.append).run([first, second])
    assert [type(event) for event in seen] == [TrialBegin, TrialRestart, TrialBegin, TrialEnd, TrialBegin, TrialEnd]
    assert str(seen[1]) == "seed 0 has collapsed and is not counted; in its place: seed 1000"
    assert [str(one).partition("  (")[0] for one in seen if isinstance(one, TrialEnd)] == [
        "[1/2] seed 1000: done",
        "[2/2] seed 1: done",
    ]
    assert second.again and second.again.replaces == "seed-1"


def test_the_error_of_a_trial_ends_the_study_or_is_noted(tmp_path: Path) -> None:
    def work(trial: StudyTrial) -> None:
        if not trial.seed:
            raise UserError("no such file")
        end(trial, collapsed=False)

    with refusal("refused"):
        Study(work=work).run(trials(tmp_path, 2))
    assert not (tmp_path / "seed-1").exists()
    problems = Problems(heading="Some failed")
    results = Study(work=work, problems=problems).run(trials(tmp_path, 2))
    assert problems.messages == ["seed 0: no such file"] and [one.counts for one in results] == [False, True]


def test_a_trial_waits_for_another_and_is_left_out_where_that_has_failed(tmp_path: Path) -> None:
    ran = []

    def work(trial: StudyTrial) -> None:
        ran.append(trial.name)
        if trial.name != "bad":
            end(trial, collapsed=False)

    names = {"good": "", "bad": "", "after good": "good", "after bad": "bad"}
    listed = [StudyTrial(name=name, folder=tmp_path / name, after=after) for name, after in names.items()]
    results = Study(work=work, threads=2).run(listed)
    assert sorted(ran) == ["after good", "bad", "good"]
    assert [one.finished for one in results] == [True, False, True, False]


def test_the_time_left_is_that_of_other_trials_of_their_kind(tmp_path: Path, monkeypatch) -> None:
    clock, lasting = [0.0], {"long": 100.0, "short": 2.0}
    monkeypatch.setattr("osbert_lab.study.runner.time.monotonic", lambda: clock[0])
    kinds = ("long", "short", "long", "short", "short")
    wanted = [StudyTrial(name=str(at), folder=tmp_path / str(at), kind=kind) for at, kind in enumerate(kinds)]
    left: list[float] = []

    def work(trial: StudyTrial) -> None:
        clock[0] += lasting[trial.kind]
        end(trial, collapsed=False)

    Study(work=work, watch=lambda event: left.append(event.left) if isinstance(event, TrialEnd) else None).run(wanted)
    assert left == [400.0, 104.0, 4.0, 2.0, 0.0]
