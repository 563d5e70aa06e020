"""A build on a Ray cluster of this machine: the same documents, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from osbert.corpus.build import Build
from osbert.corpus.executors import TaskPlan, encode_in_tasks
from osbert.corpus.state import BuildSettings

pytest.importorskip("datatrove", reason="the extra 'scale' is not installed")
ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.skipif(not Path("/proc").is_dir(), reason="no /proc")]
AT_WORK = "ray::RankWorker.run_for_rank"
"""The name that Ray gives to a process while it does a task."""


def build(files: list[Path], folder: Path, tokenizer, plan: TaskPlan | None = None) -> np.ndarray:
    """Build a corpus, and return the pieces of all its shards."""
    work = Build.prepare(files, tokenizer=tokenizer, folder=folder, settings=BuildSettings())
    work.run(encode=plan and partial(encode_in_tasks, work, plan))
    return np.concatenate([np.load(path) for path in sorted(folder.glob("shard-*/ids.npy"))])


def descendants(pid: int) -> list[int]:
    """Return the processes below a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            found += [int(path.parent.name), *descendants(int(path.parent.name))]
    return found


def kill_one(killed: list[int], ended: threading.Event) -> None:
    """Kill the first worker of this test's cluster that is seen at work."""
    while not killed and not ended.is_set():
        for pid in descendants(os.getpid()):
            try:
                name = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if name.startswith(AT_WORK):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
        time.sleep(0.01)


def test_a_killed_worker_s_task_is_done_again(tmp_path: Path, tokenizer, prose) -> None:
    files = [tmp_path / f"part-{number}.txt" for number in range(3)]
    for number, path in enumerate(files):
        path.write_text("\n\n".join(prose(200, seed=number)))
    one = build(files, tmp_path / "one", tokenizer)
    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False)
    killed: list[int] = []
    ended = threading.Event()
    killer = threading.Thread(target=kill_one, args=(killed, ended))
    killer.start()
    try:
        many = build(files, tmp_path / "many", tokenizer, TaskPlan(executor="ray", tasks=3, workers=2))
    finally:
        ended.set()
        killer.join()
        ray.shutdown()
    assert killed
    assert len(list((tmp_path / "many").glob("shard-*"))) == len(files)
    assert np.array_equal(one, many)
