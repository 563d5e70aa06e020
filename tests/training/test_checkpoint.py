"""Checkpoints under every kind of harm: truncation, a flipped bit, a lost file, a kill, a full disk."""

from __future__ import annotations

import itertools
import resource
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from osbert.training import checkpoint as module
from osbert.training.checkpoint import Checkpoint, Checkpoints, WriteError
from refusals import refusal

FILES = ["weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]


def make(step: int) -> Checkpoint:
    tensors = {"a.weight": torch.full((3, 4), float(step)), "b": torch.tensor(0.1 * step)}
    return Checkpoint(step=step, weights=tensors, optimizer={"exp_avg/b": torch.ones(2)}, state={"note": [step, 0.1]})


def saved(folder: Path, *steps: int, keep: int = 9) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep=keep)
    for step in steps:
        checkpoints.save(make(step))
    return checkpoints


def test_what_is_saved_comes_back(tmp_path) -> None:
    checkpoints = saved(tmp_path / "c", 5, 30, 200)
    assert checkpoints.newest() == (200, [])
    checkpoint = checkpoints.read(200)
    assert checkpoint.step == 200
    assert checkpoint.state == {"note": [200, 0.1]}
    assert checkpoint.weights.keys() == make(200).weights.keys()
    for name, tensor in make(200).weights.items():
        assert torch.equal(checkpoint.weights[name], tensor)
    assert torch.equal(checkpoint.optimizer["exp_avg/b"], torch.ones(2))
    assert sorted(path.name for path in (tmp_path / "c" / "step-200").iterdir()) == sorted(FILES)


def test_the_last_ones_are_kept(tmp_path) -> None:
    checkpoints = saved(tmp_path, 1, 2, 10, 11, keep=2)
    assert checkpoints.steps() == [10, 11]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-11"]


def test_a_step_can_be_saved_again(tmp_path) -> None:
    assert saved(tmp_path, 3, 3).newest()[0] == 3


def test_no_checkpoint_yet(tmp_path) -> None:
    assert Checkpoints(tmp_path / "none").newest() == (None, [])
    Checkpoints(tmp_path / "none").tidy()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", [truncate, flip, Path.unlink])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(tmp_path, name, harm) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    harm(tmp_path / "step-2" / name)
    step, messages = checkpoints.newest()
    if name == "manifest.json" and harm is not Path.unlink and step == 2:
        return  # the harmed byte was only its final newline
    assert step == 1
    (message,) = messages
    assert str(tmp_path / "step-2") in message
    assert name in message or name == "manifest.json"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged-step-2", "step-1"]
    assert checkpoints.newest()[1] == []


def test_a_damaged_one_never_counts_as_kept(tmp_path) -> None:
    checkpoints = saved(tmp_path, 1, 9, keep=2)
    truncate(tmp_path / "step-9" / FILES[0])
    checkpoints.newest()
    checkpoints.keep = 1
    checkpoints.save(make(5))
    assert checkpoints.newest()[0] == 5


def test_all_damaged_is_an_error_that_names_each(tmp_path) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    for step in (1, 2):
        truncate(tmp_path / f"step-{step}" / FILES[0])
    with refusal("damaged-file", "2", "1"):
        checkpoints.newest()


def test_what_a_kill_left_behind_is_removed(tmp_path) -> None:
    checkpoints = saved(tmp_path, 1)
    shutil.copytree(tmp_path / "step-1", tmp_path / "step-2.unfinished")
    (tmp_path / "step-2.unfinished" / FILES[0]).unlink()
    shutil.copytree(tmp_path / "step-1", tmp_path / "removed-step-0.unfinished")
    assert checkpoints.steps() == [1]
    checkpoints.tidy()
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


class Killed(BaseException):
    """Stands for kill -9: nothing in the code under test catches it or cleans up after it."""


def kill_before(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die before the file operation of that number, counted from 1."""
    calls = itertools.count(1)

    def dying(real):
        def wrapped(*arguments, **options):
            if next(calls) == number:
                raise Killed
            return real(*arguments, **options)

        return wrapped

    for name in ("save_file", "sync", "_facts"):
        monkeypatch.setattr(module, name, dying(getattr(module, name)))
    for owner, name in ((Path, "rename"), (Path, "mkdir"), (shutil, "rmtree")):
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))


def test_a_kill_at_any_moment_of_writing_leaves_a_good_one(tmp_path) -> None:
    """Two files are written and three hashed, five synced, the folder renamed, its parent synced, the old removed."""
    found = []
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        saved(folder, 3, keep=1)
        with pytest.MonkeyPatch.context() as monkeypatch:
            kill_before(number, monkeypatch)
            try:
                saved(folder, 7, keep=1)
                break
            except Killed:
                pass
        checkpoints = Checkpoints(folder, keep=1)
        checkpoints.tidy()
        step, messages = checkpoints.newest()
        assert messages == []
        assert not list(folder.glob("*.unfinished"))
        found.append(step)
    assert found == sorted(found)
    assert found.count(3) >= 11
    assert found.count(7) >= 2


def noted(step: int, note: str) -> Checkpoint:
    return replace(make(step), state={"note": note})


@pytest.mark.parametrize("keep", [1, 2])
def test_a_kill_at_any_moment_of_writing_the_same_step_again_leaves_one_of_the_two(tmp_path, keep) -> None:
    found = []
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        Checkpoints(folder, keep=keep).save(noted(3, "old"))
        with pytest.MonkeyPatch.context() as monkeypatch:
            kill_before(number, monkeypatch)
            try:
                Checkpoints(folder, keep=keep).save(noted(3, "new"))
                break
            except Killed:
                pass
        checkpoints = Checkpoints(folder, keep=keep)
        checkpoints.tidy()
        assert checkpoints.newest() == (3, [])
        assert [path.name for path in folder.iterdir()] == ["step-3"]
        found.append(checkpoints.read(3).state["note"])
    assert found == sorted(found, reverse=True)
    assert {*found} == {"old", "new"}


def test_the_same_step_written_again_replaces_the_first(tmp_path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    for note in ("old", "new"):
        assert checkpoints.save(noted(3, note)) == []
    assert checkpoints.read(3).state == {"note": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["step-3"]


def test_the_same_step_that_cannot_be_given_its_name_leaves_the_first(tmp_path, monkeypatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(noted(3, "old"))
    rename = Path.rename

    def failing(path, target):
        if path.name.endswith(module.UNFINISHED):
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(WriteError, match="Input/output error"):
        checkpoints.save(noted(3, "new"))
    assert [path.name for path in tmp_path.iterdir()] == ["step-3"]
    assert checkpoints.read(3).state == {"note": "old"}


def test_an_old_one_that_cannot_be_removed_is_told_once_and_no_error(tmp_path, monkeypatch) -> None:
    checkpoints = saved(tmp_path, 1, keep=1)
    rename = Path.rename

    def failing(path, target):
        if path.name == "step-1":
            raise OSError(13, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    (message,) = checkpoints.save(make(2))
    assert "step-1 could not be removed (Permission denied); the new one is safe" in message
    assert checkpoints.save(make(3)) == []
    assert checkpoints.steps() == [1, 3]


def test_a_write_that_fails_keeps_the_old_one_and_says_why(tmp_path, monkeypatch) -> None:
    checkpoints = saved(tmp_path / "c", 1, keep=1)

    def full(tensors, path) -> None:
        path.write_bytes(b"half")
        raise module.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(WriteError, match=r"step-2: the disk is full \([\d,.]+ MB free\)"):
        checkpoints.save(make(2))
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["step-1"]
    assert checkpoints.newest()[0] == 1


def test_a_real_limit_of_the_system(tmp_path) -> None:
    """The system refuses files of more than 10,000 bytes."""
    checkpoints = saved(tmp_path / "c", 1)
    large = Checkpoint(step=2, weights={"a": torch.ones(100_000)}, optimizer={}, state={})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(WriteError, match="step-2"):
            checkpoints.save(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["step-1"]
    assert checkpoints.newest()[0] == 1


def test_a_really_full_disk(tmp_path) -> None:
    """On a file system of 200 kB, where the system lets us mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)]
    if mount is None or subprocess.run([mount, *options], capture_output=True).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        checkpoints = saved(disk / "c", 1)
        large = Checkpoint(step=2, weights={"a": torch.ones(100_000)}, optimizer={}, state={})
        with pytest.raises(WriteError, match="the disk is full"):
            checkpoints.save(large)
        assert [path.name for path in (disk / "c").iterdir()] == ["step-1"]
        assert checkpoints.newest()[0] == 1
    finally:
        subprocess.run(["umount", str(disk)], check=True)
