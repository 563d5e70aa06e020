from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpora import files_of

SCRIPT = """
import os, pickle, sys
os.fsync = lambda handle: None  # a killed process needs no disk to wait for
from pathlib import Path
from osbert.corpus import build
from osbert.reading import documents as readers
from osbert.corpus.state import BuildSettings
from osbert.reading.documents import DocumentOptions
if __name__ == "__main__":
    build.PORTION, readers.CHUNK = 3000, 700
    tokenizer = pickle.loads(Path(sys.argv[1]).read_bytes())
    reading = DocumentOptions(errors="replace")
    settings = BuildSettings(reading=reading, shard_tokens=3000, deduplicate=sys.argv[4] == "yes")
    work = build.Build.prepare([Path(sys.argv[2])], tokenizer=tokenizer, folder=Path(sys.argv[3]), settings=settings)
    work.run(workers=int(sys.argv[5]))
"""


@pytest.fixture()
def command(tmp_path, tokenizer, prose):
    """Return a function (out) -> the command that builds the same files into `out`."""
    import pickle

    (tmp_path / "build.py").write_text(SCRIPT)
    (tmp_path / "tokenizer").write_bytes(pickle.dumps(tokenizer))
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(4):
        documents = [
            *prose(150, seed=number),
            *prose(20, seed=99),
            " ".join(prose(40, seed=number + 10)).replace("\n", " "),
        ]
        (texts / f"{number}.txt").write_bytes("\n\n".join(documents).encode() + b" \xff")
    (texts / "bad.jsonl").write_text('{"text": "One."}\n{"no": 1}\n' * 50)

    def command(out: str, deduplicate: str = "no", workers: int = 1) -> list[str]:
        parts = [tmp_path / "build.py", tmp_path / "tokenizer", texts, tmp_path / out, deduplicate, workers]
        return [sys.executable, *map(str, parts)]

    return command


def shards_in(folder: Path) -> int:
    """Count the shards while another process renames and removes them."""
    found = 0
    for inside in (folder, folder / "building"):
        with contextlib.suppress(FileNotFoundError):
            found += sum(name.startswith("shard-") for name in os.listdir(inside))
    return found


@pytest.mark.parametrize(("deduplicate", "workers", "goals"), [("no", 1, (1, 3, 6)), ("yes", 2, (3,))])
def test_a_build_killed_again_and_again_ends_in_the_same_bytes(command, tmp_path, deduplicate, workers, goals):
    subprocess.run(command("whole", deduplicate), check=True)
    building, shards = tmp_path / "killed", 0
    for more in goals:
        running = subprocess.Popen(command("killed", deduplicate, workers))
        while running.poll() is None and shards_in(building) < shards + more:
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
        running.wait()
        shards = len(json.loads((building / "building.json").read_text())["shards"]) if running.returncode else shards
    assert shards >= 2, "it was never stopped in the middle"
    subprocess.run(command("killed", deduplicate, workers), check=True)
    assert files_of(building) == files_of(tmp_path / "whole")
    repairs = json.loads((building / "corpus.json").read_text())["report"]["repairs"]
    assert (repairs["replaced"], repairs["records"]) == (4, 50)


def test_a_build_stopped_at_any_write_ends_in_the_same_bytes(tmp_path, tokenizer, prose, monkeypatch):
    """Stop before each single rename of a run, one after the other, in one process."""
    from osbert import files
    from osbert.corpus import build
    from osbert.corpus.state import BuildSettings

    monkeypatch.setattr(build, "PORTION", 800)
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join([*prose(16), *prose(5)]))

    class Stopped(BaseException):
        pass

    def run(out: str, stop: int | None) -> bool:
        left = [stop]

        def sync(folder: Path) -> None:
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise Stopped

        monkeypatch.setattr(files, "sync", sync)
        settings = BuildSettings(shard_tokens=800, deduplicate=True)
        try:
            build.Build.prepare([path], tokenizer=tokenizer, folder=tmp_path / out, settings=settings).run()
        except Stopped:
            return False
        return True

    assert run("whole", None)
    expected = files_of(tmp_path / "whole")
    for stop in range(60):
        if run(f"stopped-{stop}", stop):
            break
        assert run(f"stopped-{stop}", None)
        assert files_of(tmp_path / f"stopped-{stop}") == expected
    assert stop > 15


@pytest.mark.skipif(os.name != "posix", reason="looks for processes in the way of POSIX")
def test_workers_end_when_the_build_is_killed(command, tmp_path):
    running = subprocess.Popen(command("out", workers=2), start_new_session=True)
    while running.poll() is None and not list((tmp_path / "out").glob("shard-*")):
        time.sleep(0.002)
    running.kill()
    running.wait()
    for _ in range(500):
        try:
            os.killpg(running.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGKILL)
    pytest.fail("workers went on after the build was killed")
