"""A build on a Ray cluster of this machine: the same documents, also when a worker is killed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from killed_worker import killed_worker
from osbert.corpus.build import Build
from osbert.corpus.state import BuildSettings
from osbert.corpus.task_options import TaskPlan
from osbert_lab.executors.corpus_tasks import encode_in_tasks

pytest.importorskip("datatrove", reason="the extra 'scale' is not installed")
pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.skipif(not Path("/proc").is_dir(), reason="no /proc")]


def build(files: list[Path], folder: Path, tokenizer, plan: TaskPlan | None = None) -> np.ndarray:
    """Build a corpus, and return the pieces of all its shards."""
    work = Build.prepare(files, tokenizer=tokenizer, folder=folder, settings=BuildSettings())
    work.run(encode=plan and partial(encode_in_tasks, work, plan))
    return np.concatenate([np.load(path) for path in sorted(folder.glob("shard-*/ids.npy"))])


def test_a_killed_worker_s_task_is_done_again(tmp_path: Path, tokenizer, prose) -> None:
    files = [tmp_path / f"part-{number}.txt" for number in range(3)]
    for number, path in enumerate(files):
        path.write_text("\n\n".join(prose(200, seed=number)))
    one = build(files, tmp_path / "one", tokenizer)
    with killed_worker() as killed:
        many = build(files, tmp_path / "many", tokenizer, TaskPlan(executor="ray", tasks=3, workers=2))
    assert killed
    assert len(list((tmp_path / "many").glob("shard-*"))) == len(files)
    assert np.array_equal(one, many)
