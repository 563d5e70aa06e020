"""Output folders on an object store: a machine lost between any two requests; what another machine finds and does."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from object_store import QUIET
from osbert.errors import UserError
from osbert.remote import FolderForm, OutputFolder, output_folder
from osbert_lab.object_stores.output_folders import BEGUN, StoredFolder
from refusals import refusal

pytestmark = QUIET

RUN = FolderForm(marker="run.json", left_there=("models",), checkpoints="checkpoints", seal="manifest.json")
CORPUS = FolderForm(marker="corpus.json", left_there=("shard-*",))
OUT = "s3://box/out"
LAST = 3


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that goes to a machine: each has a cache of its own."""
    return lambda name: monkeypatch.setenv("OSBERT_CACHE", str(tmp_path / name))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def checkpoints(folder: Path) -> list[int]:
    """Return the steps of the checkpoints, each of which must be whole."""
    found = []
    for path in (folder / "checkpoints").glob("step-*"):
        manifest = json.loads((path / "manifest.json").read_text())
        for name, sha256 in manifest.items():
            assert hashlib.sha256((path / name).read_bytes()).hexdigest() == sha256
        found.append(int(path.name.removeprefix("step-")))
    return sorted(found)


def tidy(folder: Path) -> None:
    """Remove all checkpoints but the last two."""
    for step in checkpoints(folder)[:-2]:
        shutil.rmtree(folder / "checkpoints" / f"step-{step}")


def checkpoint(folder: OutputFolder, step: int) -> None:
    for name in files_of(step):
        write(folder.path / name, "{}")


def files_of(step: int) -> list[str]:
    return [f"checkpoints/step-{step}/{name}" for name in ("manifest.json", "weights")]


def train(folder: OutputFolder) -> int:
    """Go on from the newest checkpoint to the end, as a run does; return the step that it went on from."""
    path = folder.path
    begun = max(checkpoints(path), default=0)
    if (path / "run.json").exists():
        lines = (path / "metrics.jsonl").read_text().splitlines()
        assert len(lines) >= begun, "all of the checkpoint's lines"
        write(path / "metrics.jsonl", "".join(f"{line}\n" for line in lines[:begun]))
    else:
        assert not begun, "a checkpoint that is nobody's"
        write(path / "metrics.jsonl", "")
        write(path / "run.json", "{}")
    for step in range(begun + 1, LAST + 1):
        folder.follow()
        with (path / "metrics.jsonl").open("a") as file:
            file.write(f"{step}\n")
        own = path / "checkpoints" / f"step-{step}"
        write(own.with_suffix(".unfinished") / "weights", "half")
        write(own / "weights", f"weights {step}" * step)
        write(
            own / "manifest.json", json.dumps({"weights": hashlib.sha256((own / "weights").read_bytes()).hexdigest()})
        )
        shutil.rmtree(own.with_suffix(".unfinished"))
        write(path / "models" / f"step-{step}" / "config.json", "{}")
        tidy(path)
    tidy(path)
    write(path / "model", "weights")
    write(path / "config.json", "{}")
    write(path / "run.json", '{"finished": 1}')
    return begun


class Lost(BaseException):
    """The machine is lost."""


def breaking(s3: Any, monkeypatch: pytest.MonkeyPatch, after: int) -> list[int]:
    """Let the requests that change the store end the machine, from request `after` on; return their count."""
    count = [0]

    def counted(action: Callable[..., Any]) -> Callable[..., Any]:
        def request(*given: Any, **named: Any) -> Any:
            if count[0] >= after:
                raise Lost
            count[0] += 1
            return action(*given, **named)

        return request

    for name in ("put_file", "pipe_file", "rm", "rm_file"):
        monkeypatch.setattr(s3, name, counted(getattr(s3, name)))
    return count


def contents(s3: Any) -> dict[str, str]:
    """Return the MD5 of each object by its name: one request says them all."""
    return {name: facts["ETag"] for name, facts in s3.find("box/out", detail=True).items()}


def test_a_machine_is_lost_between_any_two_requests(
    s3: Any, machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        count = breaking(s3, patched, 10**6)
        with output_folder(OUT, RUN) as folder:
            assert train(folder) == 0
    whole, steps = contents(s3), []
    assert f"box/out/{BEGUN}" not in whole and len(whole) == 4 + 4 + LAST
    for after in range(count[0] + 1):
        s3.rm("box/out", recursive=True)
        machine(f"lost-{after}")
        with monkeypatch.context() as patched, suppress(Lost):
            breaking(s3, patched, after)
            with output_folder(OUT, RUN) as folder:
                train(folder)
        left = contents(s3)
        if left.get("box/out/run.json") == whole["box/out/run.json"]:
            assert {"box/out/model", "box/out/config.json"} <= {*left}, "what says so is there last"
        machine(f"next-{after}")
        with output_folder(OUT, RUN) as folder:
            steps.append(train(folder))
        assert contents(s3) == whole
    assert steps == sorted(steps) and {*steps} == {0, *range(1, LAST + 1)}
    # The lost machines come back, with less than the store has by now.
    for after in (4, count[0] // 2, count[0] - 1):
        machine(f"lost-{after}")
        with output_folder(OUT, RUN) as folder:
            assert (folder.path / "config.json").exists(), "finished"
            assert train(folder) == LAST
        assert contents(s3) == whole


def test_a_machine_with_the_last_checkpoint_finds_the_run_finished_by_another(
    s3: Any, tmp_path: Path, machine: Callable[[str], None]
) -> None:
    machine("lost")
    with pytest.raises(KeyboardInterrupt), output_folder(OUT, RUN) as folder:
        train(folder)
        for name in ("config.json", "model"):
            (folder.path / name).unlink()
        write(folder.path / "run.json", "{}")
        shutil.copytree(folder.path, tmp_path / "kept")
        raise KeyboardInterrupt
    machine("next")
    with output_folder(OUT, RUN) as other:
        assert train(other) == LAST
    whole = contents(s3)
    machine("lost")
    shutil.copytree(tmp_path / "kept", folder.path)
    with output_folder(OUT, RUN) as folder:
        assert "finished" in (folder.path / "run.json").read_text()
    assert contents(s3) == whole


def test_a_checkpoint_whose_upload_failed_does_not_stay(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put = s3.put_file

    def lost(source: str, path: str) -> None:
        if path.endswith("step-1/manifest.json"):
            raise PermissionError("denied")
        put(source, path)

    warnings: list[str] = []
    with output_folder(OUT, RUN, warn=warnings.append) as folder:
        write(folder.path / "run.json", "{}")
        checkpoint(folder, 1)
        with monkeypatch.context() as patched:
            patched.setattr(s3, "put_file", lost)
            folder.follow()
        assert len(warnings) == 1 and "box/out/checkpoints/step-1/weights" in contents(s3)
        shutil.rmtree(folder.path / "checkpoints")
        checkpoint(folder, 2)
        folder.follow()
        assert isinstance(folder, StoredFolder) and not folder.halves
    assert [*contents(s3)] == [f"box/out/{name}" for name in (*files_of(2), "run.json")]


def test_a_stopped_run_is_in_the_store_alone(
    s3: Any, tmp_path: Path, machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("here")
    with pytest.raises(KeyboardInterrupt), output_folder(OUT, RUN) as folder:
        train(folder)
        write(folder.path / "run.json", "{}")
        raise KeyboardInterrupt
    assert not any(path.is_file() for path in (tmp_path / "here").rglob("*"))
    warnings: list[str] = []

    def lost(*_: Any) -> None:
        raise ConnectionError("reset by peer")

    with pytest.raises(KeyboardInterrupt), output_folder(OUT, RUN, warn=warnings.append) as folder:
        assert train(folder) == LAST
        write(folder.path / "run.json", '{"more": 1}')
        monkeypatch.setattr(s3, "put_file", lost)
        folder.follow()
        folder.follow()
        assert len(warnings) == 1, "once a checkpoint"
        raise KeyboardInterrupt
    assert len(warnings) == 2 and str(tmp_path / "here") in warnings[1]
    monkeypatch.undo()


def test_an_upload_that_fails_is_done_by_the_same_command(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(folder: OutputFolder) -> bool:
        """Build a corpus; return whether there was one."""
        if there := (folder.path / "corpus.json").exists():
            assert (folder.path / "counts.npy").exists()
            return there
        write(folder.path / "shard-0" / "ids.npy", "ids")
        write(folder.path / "counts.npy", "counts")
        write(folder.path / "corpus.json", "{}")
        return there

    with monkeypatch.context() as patched, suppress(Lost):
        breaking(s3, patched, 3)
        with output_folder(OUT, CORPUS) as folder:
            assert not build(folder)
    assert sorted(contents(s3)) == [f"box/out/{BEGUN}", "box/out/counts.npy", "box/out/shard-0/ids.npy"]
    with output_folder(OUT, CORPUS) as folder:
        assert build(folder), "it is still here"
    whole = contents(s3)
    assert [*whole] == ["box/out/corpus.json", "box/out/counts.npy", "box/out/shard-0/ids.npy"]
    with output_folder(OUT, CORPUS) as folder:
        assert build(folder), "from the store"
        assert not (folder.path / "shard-0").exists(), "what needs no looking at is not fetched"
    assert contents(s3) == whole and not any(path.is_file() for path in tmp_path.rglob("*"))
    s3.rm("box/out", recursive=True)
    with pytest.raises(UserError), output_folder(OUT, CORPUS) as folder:
        assert not build(folder), "it was removed from the store"
        raise UserError("no")
    with output_folder(OUT, CORPUS) as folder:
        assert build(folder), "what is not in the store is kept"


def test_old_checkpoints_vanish_while_the_folder_is_looked_through(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Path.stat

    def late(path: Path, *given: Any, **named: Any) -> Any:
        facts = look(path, *given, **named)
        if path.parent.name == "step-1":
            shutil.rmtree(path.parent, ignore_errors=True)
        return facts

    with output_folder(OUT, RUN) as folder:
        write(folder.path / "run.json", "{}")
        for step in (1, 2):
            checkpoint(folder, step)
        monkeypatch.setattr(Path, "stat", late)
        folder.push()
        monkeypatch.undo()
    assert [*contents(s3)] == [f"box/out/{name}" for name in (*files_of(2), "run.json")]


def test_a_removal_whose_answer_is_lost_is_done(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(action: Callable[..., Any]) -> Callable[..., Any]:
        """Do what is asked, but lose the answer; the same request finds nothing then, as other stores say."""
        done = set()

        def request(path: str, **named: Any) -> None:
            if path in done:
                raise FileNotFoundError(path)
            done.add(path)
            action(path, **named)
            raise ConnectionError("reset by peer")

        return request

    with monkeypatch.context() as patched:
        patched.setattr("osbert_lab.object_stores.addresses.time.sleep", lambda _: None)
        for name in ("rm", "rm_file"):
            patched.setattr(s3, name, losing(getattr(s3, name)))
        with output_folder(OUT, RUN) as folder:
            write(folder.path / "run.json", "{}")
            checkpoint(folder, 1)
            folder.push()
            shutil.rmtree(folder.path / "checkpoints")
            checkpoint(folder, 2)
    assert [*contents(s3)] == [f"box/out/{name}" for name in (*files_of(2), "run.json")]


def test_what_else_lies_there(s3: Any) -> None:
    s3.pipe_file("box/out/thesis.tex", b"mine")
    for form in (RUN, CORPUS):
        with refusal("output-holds-something-else", "thesis.tex"), output_folder(OUT, form):
            pytest.fail("no work is done")
    with refusal("output-is-file", "thesis"), output_folder(f"{OUT}/thesis.tex", CORPUS):
        pytest.fail("no work is done")
    with refusal("output-is-input"), output_folder(OUT, CORPUS, inputs=[f"{OUT}/thesis.tex"]):
        pytest.fail("no work is done")
    with refusal("missing-file", "nobox"), output_folder("s3://nobox/out", CORPUS):
        pytest.fail("no work is done")
    s3.rm("box/out", recursive=True)
    with output_folder(OUT, CORPUS) as folder:
        with refusal("output-in-use"), output_folder(OUT, CORPUS):
            pytest.fail("one process writes at a time")
        write(folder.path / "half", "kept")
    with refusal("begun-with-other-settings", "outputs"), output_folder(OUT, CORPUS) as folder:
        raise UserError(f"{folder.path} holds a run with other settings", code="begun-with-other-settings")
