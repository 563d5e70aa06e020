"""Rows in tasks: the bytes of one process, whatever the number of tasks; a killed task alone is done again."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import osbert
import tiny_runs
from osbert.corpus.task_options import PendingTasks
from osbert.runs.contract import WorkProgress
from osbert.runs.file_options import TextFile, TextTaskOptions
from osbert.runs.rows import explain as explained_rows
from osbert.runs.rows import predict as predict_run
from osbert.runs.rows import texts as row_texts
from osbert.runs.rows import vector_parts as windows
from osbert.runs.similarity import search_file
from osbert.runs.similarity.search import SearchRequest
from osbert.runs.similarity.settings import SearchOptions
from osbert_lab.executors import row_tasks, stages
from osbert_lab.executors.row_tasks import divide_rows
from osbert_lab.executors.stages import ExecutorStage
from refusals import refusal

pytest.importorskip("datatrove", reason="the extra 'scale' is not installed")

WORDS = ("good", "a bad play", "film . the actor", "", "poor films " * 20)
TASKS: dict[str, Any] = {"executor": "local", "tasks": 3, "workers": 1}


class HereTasks:
    """Stands in for datatrove: runs tasks in this process, one after the other; `stops_at` is a rank that is killed."""

    def __init__(self) -> None:
        self.stops_at: int | None = None
        self.done: list[int] = []

    def __call__(
        self, stages: list[ExecutorStage], plan: object, folders: object, report: Callable[[int, int], None]
    ) -> None:
        (stage,) = stages
        for rank in range(stage.tasks):
            if rank == self.stops_at:
                raise PendingTasks
            if rank not in self.done:
                stage.steps[0].threads or pytest.fail("tasks of one machine divide its cores")
                row_tasks.RangeStep(stage.steps[0].work, stage.steps[0].ranges, stage.steps[0].folder)(None, rank)
                self.done.append(rank)
                report(stage.sizes[rank], sum(stage.sizes))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> HereTasks:
    monkeypatch.setattr(predict_run, "TEXTS", 8)
    monkeypatch.setattr(windows, "ROWS", 8)
    monkeypatch.setattr(explained_rows, "WINDOW", 4)
    monkeypatch.setattr(row_texts, "WINDOW", 8)
    monkeypatch.setattr(row_tasks, "run_stages", here := HereTasks())
    return here


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text("id,text\n" + "".join(f"{n},{WORDS[n % 5]} {'film ' * (n % 7)}\n" for n in range(45)))
    return path


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 8))
def test_ranges_are_runs_of_whole_windows(sizes: list[int], tasks: int) -> None:
    ranges = divide_rows(map(range, sizes), tasks)
    assert len(ranges) <= tasks
    assert [row for one in ranges for row in range(one.start, one.stop)] == [*range(sum(sizes))]
    assert {one.stop for one in ranges} <= {*accumulate(sizes)}
    assert all(one.stop - one.start <= sum(sizes) / tasks + max(sizes) for one in ranges)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_predictions(runs: dict[str, Path], file: Path, tmp_path: Path, here: HereTasks, form: str) -> None:
    one, two = tmp_path / f"one.{form}", tmp_path / f"two.{form}"
    osbert.predict(runs["classifier"], file, out=one)
    here.stops_at = 1
    with refusal("tasks-pending", "local"):
        osbert.predict(runs["classifier"], file, out=two, **TASKS)
    with refusal("begun-with-other-settings"):
        osbert.predict(runs["classifier"], file, out=two, text="id", **TASKS)
    here.stops_at = None
    counts = osbert.predict(runs["classifier"], file, out=two, **TASKS)
    assert here.done == [0, 1, 2], "each task once"
    assert counts.rows == 45
    assert one.read_bytes() == two.read_bytes()
    assert not list(tmp_path.glob("*.unfinished"))


@pytest.mark.parametrize(("out", "pooling"), [("x.npz", "tokens"), ("x.npy", "mean"), ("x.jsonl", "tokens")])
def test_vectors(runs: dict[str, Path], file: Path, tmp_path: Path, here: HereTasks, out: str, pooling: str) -> None:
    for name, tasks in (("one", {}), ("two", TASKS)):
        (tmp_path / name).mkdir()
        keep = {"keep_columns": True} if out != "x.jsonl" else {}
        osbert.embed(runs["classifier"], file, out=tmp_path / name / out, pooling=pooling, **keep, **tasks)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two
    assert here.done == [0, 1, 2]


@pytest.mark.lab
def test_scores_and_generations(runs: dict[str, Path], file: Path, tmp_path: Path, here: HereTasks) -> None:
    writer = tiny_runs.write_run(tmp_path / "writer", None, masks=True, direction="left_to_right")
    file.write_text("id,text\n" + "".join(f"{n},{WORDS[n % 4]}\n" for n in range(45)))
    sampled = {"most": 3, "sample": True, "seed": 5}
    for name, tasks in (("one", {}), ("two", TASKS)):
        osbert.score(runs["pretrained"], file, out=tmp_path / f"scores-{name}.jsonl", **tasks)
        here.done.clear()
        osbert.generate(writer, file, out=tmp_path / f"texts-{name}.csv", **sampled, **tasks)
    for one in tmp_path.glob("*-one.*"):
        assert one.read_bytes() == one.with_name(one.name.replace("one", "two")).read_bytes()


def test_a_stopped_search_goes_on_and_tasks_write_the_same_rows(
    runs: dict[str, Path], file: Path, tmp_path: Path, here: HereTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    osbert.embed(runs["pretrained"], file, out=tmp_path / "x.npz", pooling="mean")
    request = SearchRequest(vectors=tmp_path / "x.npz", options=SearchOptions(top=2))
    search_file.search_file(request, TextFile(file), out=tmp_path / "whole.csv")
    monkeypatch.setattr(search_file, "QUERIES", 10)

    def stop(event: object) -> None:
        if isinstance(event, WorkProgress) and event.done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_file.search_file(request, TextFile(file), out=tmp_path / "out.csv", watch=stop)
    events: list[object] = []
    tally = search_file.search_file(request, TextFile(file), out=tmp_path / "out.csv", watch=events.append)
    assert [event.done for event in events if isinstance(event, WorkProgress)] == [20, 30, 40, 45]
    assert (tally.queries, tally.rows, tally.empty) == (45, 88, 1)
    in_tasks = TextFile(file, TextTaskOptions(executor="local", tasks=3, workers=1))
    assert search_file.search_file(request, in_tasks, out=tmp_path / "tasks.csv").rows == 88
    whole = (tmp_path / "whole.csv").read_bytes()
    assert whole == (tmp_path / "out.csv").read_bytes() == (tmp_path / "tasks.csv").read_bytes()


def test_explanations(runs: dict[str, Path], file: Path, tmp_path: Path, here: HereTasks) -> None:
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:13]))
    for name, tasks in (("one", {}), ("two", TASKS)):
        osbert.explain(runs["classifier"], file, out=tmp_path / name, points=8, check=False, **tasks)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two
    assert here.done == [0, 1, 2]


@pytest.mark.lab
def test_analyses(runs: dict[str, Path], tmp_path: Path, here: HereTasks) -> None:
    data = tmp_path / "text.txt"
    data.write_text("".join(f"{word} a film . the actor\n\n" for word in WORDS * 8 if word))
    few = {"shortest": 3, "length": 12}
    one = osbert.analyse(runs["pretrained"], data=data, out=tmp_path / "one", **few)
    here.stops_at = 1
    with refusal("tasks-pending", "local"):
        osbert.analyse(runs["pretrained"], data=data, out=tmp_path / "two", **few, **TASKS)
    here.stops_at = None
    osbert.analyse(runs["pretrained"], data=data, out=tmp_path / "two", **few, **TASKS)
    assert here.done == [0, 1, 2], "each task once"
    assert len(one.figures) > 3
    for name in ("analysis.json", "report.html"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    here.done.clear()
    osbert.analyse(runs["pretrained"], data=data, out=tmp_path / "few", **few, only="heads,geometry", executor="local")
    assert here.done == [0, 1], "each analysis is a task"
    data.write_text(data.read_text() + "another text that is longer\n")
    with refusal("output-holds-something-else"):
        osbert.analyse(runs["pretrained"], data=data, out=tmp_path / "two", **few, **TASKS)


def test_a_task_finds_the_file_changed(
    runs: dict[str, Path], file: Path, tmp_path: Path, here: HereTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(*given: Any) -> None:
        file.write_text(file.read_text().replace("good", "bad"))
        here(*given)

    monkeypatch.setattr(row_tasks, "run_stages", changing)
    with refusal("file-changed", "in.csv"):
        osbert.predict(runs["classifier"], file, out=tmp_path / "out.csv", **TASKS)


def test_a_part_that_is_gone_is_not_passed_over(
    runs: dict[str, Path], file: Path, tmp_path: Path, here: HereTasks
) -> None:
    here.done.append(1)  # finished, as its note says
    with refusal("damaged-file", "16"):
        osbert.predict(runs["classifier"], file, out=tmp_path / "out.csv", **TASKS)


def test_a_killed_process_is_started_again(runs: dict[str, Path], file: Path, tmp_path: Path) -> None:
    """The process of the task is killed when it starts."""
    killed: list[int | None] = []

    def kill() -> None:
        while not (children := multiprocessing.active_children()):
            time.sleep(0.01)
        children[0].kill()
        killed.append(children[0].pid)

    killer = threading.Thread(target=kill)
    killer.start()
    tasks = {**TASKS, "tasks": 1}
    osbert.predict(runs["classifier"], file, out=tmp_path / "two.csv", **tasks)
    killer.join()
    assert killed
    osbert.predict(runs["classifier"], file, out=tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "two.csv").read_text()


def test_of_three_tasks_the_killed_one_alone_is_written_again(
    runs: dict[str, Path], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the second task is killed when it starts, and is not started again by the same command."""
    monkeypatch.setattr(stages, "TRIES", 1)
    monkeypatch.setattr(predict_run, "TEXTS", 16)  # of this process, which divides the rows
    three = {**TASKS, "workers": 3}
    out, join = tmp_path / "two.csv", row_tasks.join_parts
    parts = out.with_name("two.csv.unfinished") / "tasks-3"
    times: list[dict[str, int]] = []

    def written() -> dict[str, int]:
        """Return when each part was written last, by the name of its task."""
        return {path.parent.name: path.stat().st_mtime_ns for path in sorted(parts.glob("task-*/rows.bin"))}

    def kill() -> None:
        while len(children := multiprocessing.active_children()) < 3:
            time.sleep(0.01)
        sorted(children, key=lambda child: int(child.name.rpartition("-")[2]))[1].kill()

    def joined(*given: Any) -> Any:
        times.append(written())
        return join(*given)

    monkeypatch.setattr(row_tasks, "join_parts", joined)
    killer = threading.Thread(target=kill)
    killer.start()
    with refusal("child-failed", "Task 1"):
        osbert.predict(runs["classifier"], file, out=out, **three)
    killer.join()
    before = written()
    assert [*before] == ["task-00000", "task-00002"]
    osbert.predict(runs["classifier"], file, out=out, **three)
    [after] = times
    assert [*after] == ["task-00000", "task-00001", "task-00002"]
    assert before.items() <= after.items() and after["task-00001"] > max(before.values())
    osbert.predict(runs["classifier"], file, out=tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_bytes() == out.read_bytes()


def test_settings_that_do_not_go_together(runs: dict[str, Path], file: Path, tmp_path: Path) -> None:
    with refusal("options-exclude-each-other", "--tasks"):
        osbert.predict(runs["classifier"], file, out=tmp_path / "out.csv", tasks=2)
    with refusal("options-exclude-each-other", "--executor"):
        osbert.predict(runs["classifier"], file, out="/dev/stdout", **TASKS)
