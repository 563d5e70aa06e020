"""Trackers get every line of metrics.jsonl once, under the same names, however often a run is stopped."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from osbert import components
from osbert.errors import Problems
from osbert.runs.finetune.finetune import finetune
from osbert.training import tracking
from osbert.training.progress import Progress
from osbert.training.tracking import TRACKERS, Metrics, TrackedRun, Tracker, TrackerQueue, read_lines, require_trackers
from refusals import refusal
from tiny_runs import write_run

Line = tuple[int, dict[str, float]]


class Memory(Tracker):
    """Keeps what it is given, by the ids of its runs."""

    library = "json"
    runs: dict[str, list[Line]] = {}
    broken = False

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(run)
        self.id = run.id or f"run-{len(self.runs)}"
        self.lines = self.runs.setdefault(self.id, [])

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        if Memory.broken:
            raise ConnectionError("no network")
        self.lines.append((step, dict(figures)))

    def close(self) -> None:
        """Keep all."""


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> type[Memory]:
    monkeypatch.setattr(tracking, "find_tracker", lambda name: Memory)
    monkeypatch.setattr(Memory, "runs", {})
    return Memory


def written(folder: Path) -> list[Line]:
    return [
        (line["step"], {name: value for name, value in line.items() if name != "step" and value is not None})
        for line in read_lines(folder / "metrics.jsonl")
    ]


def write(folder: Path, steps: Sequence[int], *, track: Sequence[str] = ("memory",), notices: Any = None) -> None:
    """Write the lines of some steps as a run does that goes on before the first of them."""
    metrics = Metrics(folder, every=1, memory={}, queue=TrackerQueue(folder, track, [] if notices is None else notices))
    metrics.go_back(steps[0] - 1)
    for step in steps:
        metrics.write({"step": step, "loss": math.nan if step == 2 else 1 / step, "dev.f1/a b": 0.5})
    metrics.close()


@pytest.mark.parametrize("stop", range(1, 7))
def test_a_resumed_run_goes_on_in_the_same_one_without_a_line_twice(
    tmp_path: Path, memory: type[Memory], stop: int
) -> None:
    write(tmp_path, range(1, 5))
    write(tmp_path, range(stop, 8) if stop <= 5 else range(5, 8))
    [lines] = memory.runs.values()
    assert lines == written(tmp_path) and len(lines) == 7 and "loss" not in lines[1][1]


def test_one_that_joins_later_gets_all_lines(tmp_path: Path, memory: type[Memory]) -> None:
    write(tmp_path, range(1, 4), track=())
    assert not (tmp_path / TRACKERS).exists()
    write(tmp_path, range(3, 6))
    [lines] = memory.runs.values()
    assert lines == written(tmp_path)


def test_one_that_fails_gets_its_lines_with_the_next(
    tmp_path: Path, memory: type[Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(memory, "broken", True)
        write(tmp_path, range(1, 4), notices=notices)
    assert len(notices) == 1 and "no network" in notices[0]
    write(tmp_path, range(4, 6))
    [lines] = memory.runs.values()
    assert lines == written(tmp_path) and len(lines) == 5


def test_one_that_fails_at_the_last_line_gets_it_at_the_end(
    tmp_path: Path, memory: type[Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = TrackerQueue(tmp_path, ["memory"], [])
    metrics = Metrics(tmp_path, every=1, memory={}, queue=queue)
    metrics.go_back(0)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "broken", True)
        metrics.write({"step": 1, "loss": 1.0})
    metrics.close()
    [lines] = memory.runs.values()
    assert lines == written(tmp_path) and len(lines) == 1
    assert json.loads((tmp_path / TRACKERS).read_text("utf-8"))["memory"]["given"] == [1, 1]


@pytest.mark.parametrize(("first", "then"), [((2, 4, 6), (4, 8, 12)), ((5, 10), (6, 7, 8, 9, 10, 11))])
def test_lines_at_other_steps_than_before_lie_behind_the_last(
    tmp_path: Path, memory: type[Memory], first: Sequence[int], then: Sequence[int]
) -> None:
    """As of a run that was killed and goes on from a checkpoint before with another training.log_every."""
    write(tmp_path, first)
    write(tmp_path, then)
    [lines] = memory.runs.values()
    assert [step for step, _ in lines] == [*first, *(step for step in then if step > first[-1])]


def test_a_run_that_cannot_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: TrackedRun) -> Tracker:
        raise PermissionError("no key")

    monkeypatch.setattr(tracking, "find_tracker", lambda name: refuse)
    with refusal("not-tracked", "--track memory", "no key"):
        TrackerQueue(tmp_path, ["memory"], [])


def test_a_missing_library_and_a_wrong_name_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    encoder = write_run(tmp_path / "encoder", None)
    rows = [("good", "pos"), ("bad", "neg")] * 20
    with refusal("missing-library", "osbert[wandb]", "osbert[mlflow]"):
        finetune("classify", model=encoder, data=rows, out=tmp_path / "run", track="wandb,mlflow")
    with refusal("unknown-component", "tensorbord", "'tensorboard'"):
        finetune("classify", model=encoder, data=rows, out=tmp_path / "run", track=["tensorbord"])
    assert not (tmp_path / "run").exists()


def test_every_tracker_is_an_extra_that_installs_what_it_needs() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    for name in components.names("training.trackers"):
        [needed] = project["optional-dependencies"][name]
        assert needed.startswith(tracking.find_tracker(name).library)


@pytest.fixture
def tracked(tmp_path: Path) -> Callable[[str], tuple[Path, list[Line]]]:
    """Return a function that fine-tunes with a tracker, stopped and gone on with, and returns the folder."""

    def run(name: str) -> tuple[Path, list[Line]]:
        problems = Problems(heading="")
        require_trackers([name], problems)
        if problems.count:
            pytest.skip(problems.messages[0])
        encoder = write_run(tmp_path / "encoder", None)
        rows = [("the good film", "pos"), ("a bad film", "neg")] * 20
        settings: dict[str, Any] = {"epochs": 2, "batch": 8, "log_every": 2, "checkpoint_every": 3, "device": "cpu"}

        def watch(event: object) -> None:
            if isinstance(event, Progress) and event.step == 7:
                raise RuntimeError("a kill")

        call = {"model": encoder, "data": rows, "out": tmp_path / "run", "track": name, **settings}
        with pytest.raises(RuntimeError):
            finetune("classify", watch=watch, **call)
        before = json.loads((tmp_path / "run" / TRACKERS).read_text())[name]["id"]
        finetune("classify", **call)
        assert json.loads((tmp_path / "run" / TRACKERS).read_text())[name]["id"] == before
        return tmp_path / "run", written(tmp_path / "run")

    return run


def figures(lines: Sequence[Line]) -> set[tuple[int, str]]:
    return {(step, name) for step, line in lines for name in line}


def test_tensorboard_has_the_figures(tracked: Callable[[str], tuple[Path, list[Line]]]) -> None:
    folder, lines = tracked("tensorboard")
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted((folder / "tensorboard").iterdir()):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (size,) = struct.unpack_from("<Q", data, place)  # then a checksum of 4 bytes, the event, and another one
            event = Event.FromString(data[place + 12 : place + 12 + size])
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            place += size + 16
    assert {(step, name) for step, name, _ in found} == figures(lines) and len(found) == len(figures(lines))
    losses = {step: value for step, name, value in found if name == "loss"}
    assert losses == pytest.approx({step: line["loss"] for step, line in lines if "loss" in line})


def test_mlflow_has_the_figures(
    tracked: Callable[[str], tuple[Path, list[Line]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database needs more than mlflow-skinny
    folder, lines = tracked("mlflow")
    from mlflow import MlflowClient

    client, own = MlflowClient(), json.loads((folder / TRACKERS).read_text())["mlflow"]["id"]
    run = client.get_run(own)
    assert run.info.status == "FINISHED" and run.data.params["training.epochs"] == "2"
    found = [(one.step, name) for name in run.data.metrics for one in client.get_metric_history(own, name)]
    assert set(found) == figures(lines) and len(found) == len(figures(lines))


def test_wandb_has_the_figures(
    tracked: Callable[[str], tuple[Path, list[Line]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder, _ = tracked("wandb")
    own = json.loads((folder / TRACKERS).read_text())["wandb"]["id"]
    runs = [*(folder / "wandb").glob("offline-run-*")]
    assert len(runs) == 2 and all(path.name.endswith(own) for path in runs)
