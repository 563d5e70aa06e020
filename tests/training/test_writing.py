"""Checkpoints that are written while training goes on: the same bytes, one at a time, and failures are reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from osbert.training import checkpoint as module
from osbert.training.settings import TrainingSettings

FILES = ("weights.safetensors", "optimizer.safetensors", "state.json")


class Gate:
    """Stands in for safetensors' save_file: a write waits until the gate is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.waiting = threading.Event(), threading.Event()
        self.write = module.save_file
        self.error: Exception | None = None
        monkeypatch.setattr(module, "save_file", self)

    def __call__(self, tensors, path: Path) -> None:
        self.waiting.set()
        assert self.open.wait(30)
        if self.error and "step-4" in str(path):
            raise self.error
        self.write(tensors, path)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of all checkpoints, without the seconds that steps took."""
    clock = (b'"seconds"', b'"loader_seconds"')
    return {
        f"{path.parent.name}/{path.name}": b"\n".join(
            line for line in path.read_bytes().split(b"\n") if not any(name in line for name in clock)
        )
        if path.suffix == ".json"
        else path.read_bytes()
        for path in sorted((folder / "checkpoints").glob("*/*"))
        if path.name in FILES
    }


def test_a_checkpoint_is_that_of_its_step_although_training_goes_on(toys, tmp_path, gate) -> None:
    """The write of step 4 begins when the weights and the caller's memory are those of step 7."""
    for name, writing in (("waiting", "foreground"), ("ahead", "background")):
        trainer = toys.trainer(tmp_path / name, keep=9, checkpoint_writing=writing)
        trainer.memory["steps"] = []
        gate.open.set()
        for progress in trainer.run():
            trainer.memory["steps"].append(progress.step)
            if writing == "background" and progress.step in (4, 7):
                (gate.open.clear if progress.step == 4 else gate.open.set)()
            if writing == "background" and progress.step == 6:
                assert trainer.checkpoints.steps() == []
        assert trainer.checkpoints.steps() == [4, 8, 10]
        assert trainer.notices == []
    assert content(tmp_path / "waiting") == content(tmp_path / "ahead")
    assert len(content(tmp_path / "ahead")) == 9


def test_one_write_at_a_time(toys, tmp_path, gate) -> None:
    """The save of step 8 waits for the write of step 4."""
    trainer = toys.trainer(tmp_path, checkpoint_writing="background")
    running = [progress.step for progress in run_until(trainer, 8)]
    assert running[-1] == 8
    assert gate.waiting.wait(30)
    assert trainer.writer.running[0] == 4
    threading.Timer(0.05, gate.open.set).start()
    trainer.save(behind=True)
    assert trainer.checkpoints.steps()[0] == 4
    trainer.writer.settle()
    assert trainer.checkpoints.steps() == [4, 8]


def run_until(trainer, last: int) -> Iterator:
    """Yield the steps up to `last`, and keep the iterator of the run open."""
    trainer.kept = trainer.run()
    for progress in trainer.kept:
        yield progress
        if progress.step == last:
            return


def test_whoever_leaves_the_run_waits_for_the_write(toys, tmp_path, gate) -> None:
    trainer = toys.trainer(tmp_path, checkpoint_writing="background")
    for progress in trainer.run():
        if progress.step == 5:
            threading.Timer(0.05, gate.open.set).start()
            break
    assert trainer.checkpoints.steps() == [4]
    assert trainer.writer.running is None


def test_a_failure_is_reported_at_the_next_save(toys, tmp_path, gate) -> None:
    gate.error = OSError(28, "No space left on device")
    gate.open.set()
    trainer = toys.trainer(tmp_path, checkpoint_writing="background")
    notices = [len(trainer.notices) for _ in trainer.run()]
    assert notices == [0] * 8 + [1, 1]
    assert "step 4 could not be written; there is none before it" in trainer.notices[0]
    assert "the disk is full" in trainer.notices[0]
    assert trainer.checkpoints.steps() == [8, 10]


def test_an_error_that_is_no_failure_of_the_disk_is_raised(toys, tmp_path, gate) -> None:
    gate.error = ValueError("a defect")
    gate.open.set()
    with pytest.raises(ValueError, match="a defect"):
        list(toys.trainer(tmp_path, checkpoint_writing="background").run())


def test_without_memory_for_a_copy_training_waits(toys, tmp_path, monkeypatch) -> None:
    def short(*_: object, **__: object) -> torch.Tensor:
        raise MemoryError

    trainer = toys.trainer(tmp_path, checkpoint_writing="background")
    with monkeypatch.context() as patch:
        patch.setattr("osbert.training.checkpoint.torch.empty", short)
        running = list(run_until(trainer, 5))
    assert len(running) == 5
    assert trainer.checkpoints.steps() == [4]
    (notice,) = trainer.notices
    assert "Memory does not suffice for a copy" in notice and "step 4" in notice


def test_a_run_goes_on_from_what_was_written_behind(toys, tmp_path) -> None:
    whole = toys.trainer(tmp_path / "whole")
    list(whole.run())
    first = toys.trainer(tmp_path / "cut", checkpoint_writing="background")
    for progress in first.run():
        if progress.step == 6:
            break
    again = toys.trainer(tmp_path / "cut", checkpoint_writing="background")
    assert again.resume() and again.step == 4
    list(again.run())
    assert toys.same(whole.learner, again.learner)


@pytest.mark.parametrize(("writing", "behind"), [("auto", False), ("foreground", False), ("background", True)])
def test_training_on_a_cpu_waits_by_default(toys, tmp_path, writing, behind) -> None:
    assert toys.trainer(tmp_path, checkpoint_writing=writing).behind is behind
    assert TrainingSettings().checkpoint_writing == "auto"
