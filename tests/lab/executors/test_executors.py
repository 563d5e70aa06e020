"""Builds in tasks, by datatrove's executors: the same documents, and a killed task alone is done again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from osbert.corpus.build import Build
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings, Filters
from osbert.corpus.task_options import PendingTasks, TaskPlan
from osbert.reading.inputs import find_inputs
from osbert_lab.executors.corpus_tasks import divide_inputs, encode_in_tasks, union_length
from refusals import refusal

pytest.importorskip("datatrove", reason="the extra 'scale' is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

EN = "The old house stood on a hill above the river, and nobody had lived there for years. "
DE = "Das alte Haus stand auf einem Hügel über dem Fluss, und niemand wohnte in ihm. "


@pytest.fixture
def files(tmp_path: Path, prose) -> list[Path]:
    found = []
    for number in range(4):
        found.append(tmp_path / f"part-{number}.txt")
        found[-1].write_text("\n\n".join(prose(20 + 10 * number, seed=number)))
    return found


def texts(corpus: Corpus, tokenizer) -> list[list[str]]:
    """Return the sentences of each document."""
    found: list[list[str]] = []
    for number in range(len(corpus.manifest["shards"])):
        shard = corpus._shard(number)
        opens = set(shard.documents.tolist())
        for sentence, (start, end) in enumerate(pairwise(shard.sentences.tolist())):
            if sentence in opens:
                found.append([])
            found[-1].append(tokenizer.decode(shard.ids[start:end].tolist()))
    return found


def build(files, folder: Path, tokenizer, plan: TaskPlan | None = None, **settings) -> Corpus:
    work = Build.prepare(files, tokenizer=tokenizer, folder=folder, settings=BuildSettings(**settings))
    work.run(encode=plan and partial(encode_in_tasks, work, plan))
    return Corpus.open(folder)


def test_the_documents_are_those_of_a_build_in_one_process(tmp_path, files, tokenizer):
    one = build(files, tmp_path / "one", tokenizer)
    two = build(files, tmp_path / "two", tokenizer, TaskPlan(tasks=2, workers=2), shard_tokens=3000)
    assert texts(one, tokenizer) == texts(two, tokenizer)
    assert one.counts.tolist() == two.counts.tolist()
    same = ("documents", "sentences", "tokens", "lines", "duplicate_lines", "text_bytes", "repairs", "inputs")
    assert [one.report[name] for name in same] == [two.report[name] for name in same]
    assert len(two.manifest["shards"]) == 2
    assert {path.name for path in two.folder.iterdir()} == {
        "corpus.json", "counts.npy", *(shard["name"] for shard in two.manifest["shards"])
    }  # fmt: skip


def test_deduplicating_goes_over_all_tasks(tmp_path, files, tokenizer):
    again = [*files, files[0]]
    one = build(again, tmp_path / "one", tokenizer, deduplicate=True)
    two = build(again, tmp_path / "two", tokenizer, TaskPlan(tasks=3, workers=2), deduplicate=True)
    assert texts(one, tokenizer) == texts(two, tokenizer)
    assert two.report["duplicate_documents"] >= 20


def test_filters_and_near_duplicates(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr("osbert_lab.executors.corpus_tasks.BUCKETS", 3)
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    words = [f"{first}{second}xy" for first in "abcdefgh" for second in "klmnopqrst"]
    near = " ".join(["The", *words, "and the end of it."])
    first.write_text("\n\n".join([EN * 5, DE * 5, near]))
    second.write_text("\n\n".join([near.replace("htxy", "other"), "Too short for the rest."]))
    plan = TaskPlan(tasks=2, workers=2)

    def starts(plan=plan, **filters) -> tuple[list[str], dict[str, int]]:
        folder = tmp_path / "-".join(["out", *filters])
        corpus = build([first, second], folder, tokenizer, plan, filters=Filters(**filters))
        return sorted(document[0][:3] for document in texts(corpus, tokenizer)), corpus.report["left_out"]

    assert starts(language="de", quality=True) == (["das"], {"language": 4})
    assert starts(near_duplicates=True) == (["das", "the", "the", "too"], {"near_duplicates": 1})
    alone = replace(plan, tasks=1)
    assert starts(alone, quality=True)[1] == {"quality": 1}
    with refusal("no-data", "5"):
        starts(alone, language="ko")


@pytest.mark.parametrize("end", ["worker", "all"])
def test_a_killed_task_alone_is_done_again(tmp_path, files, tokenizer, end):
    """The second task stops until it is killed; then it, or all, is gone, and the first one's work is kept."""
    files[-1].write_text(files[-1].read_text() + "\n\nStop here.")
    folder = tmp_path / "out"
    script = tmp_path / "build.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, signal
        from functools import partial
        from pathlib import Path
        import osbert_lab.executors.corpus_tasks as tasks
        from osbert.corpus.build import Build
        from osbert_lab.executors.corpus_tasks import encode_in_tasks
        from osbert.corpus.state import BuildSettings
        from osbert.corpus.task_options import TaskPlan
        from osbert.text.tokenizer import Tokenizer

        mark = Path({str(tmp_path / "mark")!r})
        encode = tasks.encode_portion

        def stopping(portion, *rest, **more):
            if not mark.exists() and any("Stop here." in text for text, _ in portion):
                mark.write_text(str(os.getpid()))
                signal.pause()
            return encode(portion, *rest, **more)

        tasks.encode_portion = stopping
        if __name__ == "__main__":
            tokenizer = Tokenizer({list(tokenizer.vocabulary)!r})
            files = {[str(path) for path in files]!r}
            work = Build.prepare(files, tokenizer=tokenizer, folder=Path({str(folder)!r}), settings=BuildSettings())
            work.run(encode=partial(encode_in_tasks, work, TaskPlan(tasks=2, workers=1)))
        """)
    )
    command = [sys.executable, str(script)]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        mark = tmp_path / "mark"
        while not (mark.is_file() and mark.read_text()):  # the second task has come to its stop, or all have ended
            assert run.poll() is None, run.communicate()[1]
            time.sleep(0.05)
        (done,) = (folder / "building").glob("tasks-*/task-00000/task.json")
        before = done.stat()
        if end == "worker":
            os.kill(int(mark.read_text()), signal.SIGKILL)
            assert run.wait() == 0, run.communicate()[1]
        else:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            again = subprocess.run(command, capture_output=True, text=True)
            assert again.returncode == 0, again.stderr
            assert again.stderr == ""
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        assert run.stderr is not None
        run.stderr.close()
    one = build(files, tmp_path / "one", tokenizer)
    two = Corpus.open(folder)
    assert texts(one, tokenizer) == texts(two, tokenizer)
    ids = folder / "shard-00000" / "ids.npy"
    assert ids.stat().st_mtime_ns <= before.st_mtime_ns  # of the run before: moved into place, not written again


def test_what_is_wrong_in_an_input_is_told_and_the_rest_kept(tmp_path, files, tokenizer):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"Fine. " * 400_000 + b"\xff\xfe broken")
    work = Build.prepare([files[0], bad], tokenizer=tokenizer, folder=tmp_path / "out", settings=BuildSettings())
    with refusal("child-failed", "bad.txt", "2,400,000", "1", "8"):
        work.run(encode=partial(encode_in_tasks, work, TaskPlan(tasks=2, workers=1)))
    assert list((tmp_path / "out").glob("building/tasks-*/task-00000/task.json"))


def test_slurm_gets_the_tasks(tmp_path, files, tokenizer, monkeypatch):
    """A stand-in for sbatch takes the job; its tasks are then run as Slurm would, and the next command finishes."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, says in (("sbatch", "Submitted batch job 7"), ("scontrol", "here")):
        (programs / name).write_text(f"#!/bin/sh\necho {says}\n")
        (programs / name).chmod(0o755)
    queue = programs / "squeue"
    queue.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho 7_0 cpu osbert-encode\n')
    queue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    plan = TaskPlan(executor="slurm", tasks=2, partition="cpu", workers=0)
    with pytest.raises(PendingTasks):
        build(files, tmp_path / "out", tokenizer, plan)
    (script,) = (tmp_path / "out").glob("building/tasks-*/logs/encode/launch_script.slurm")
    assert "#SBATCH --array=0-1\n" in script.read_text(), "as many at a time as the cluster has room for"
    for again in (plan, replace(plan, tasks=3)):  # the jobs are still there: nothing is submitted twice
        before = script.stat().st_mtime_ns
        with pytest.raises(PendingTasks):
            build(files, tmp_path / "out", tokenizer, again)
        assert script.stat().st_mtime_ns == before
        assert len(list((tmp_path / "out").glob("building/tasks-*/logs/encode/launch_script.slurm"))) == 1
    assert (tmp_path / "asked").read_text() == "--noheader --jobs 7\n" * 2
    queue.unlink()
    with refusal("slurm-unavailable", "7"):
        build(files, tmp_path / "out", tokenizer, plan)
    queue.write_text("#!/bin/sh\necho slurm_load_jobs error: Invalid job id specified >&2\nexit 1\n")
    queue.chmod(0o755)
    assert "#SBATCH --partition=cpu" in script.read_text()
    for rank in "01":
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": rank, "SLURM_NODELIST": "here"}
        command = ["launch_pickled_pipeline", str(script.with_name("executor.pik"))]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    notes = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").glob("building/tasks-*/*/task.json"))]
    two = build(files, tmp_path / "out", tokenizer, plan)
    assert texts(two, tokenizer) == texts(build(files, tmp_path / "one", tokenizer), tokenizer)
    at_work = union_length(tuple(note["span"]) for note in notes)
    assert len(notes) == 2 and at_work > 0
    assert two.report["seconds"] >= round(at_work, 3), "what the tasks took, and not the last command alone"


def test_the_time_at_work_is_counted_once() -> None:
    assert union_length([]) == 0
    assert union_length([(5, 7), (0, 1), (0.5, 2), (6, 6.5)]) == 4


def test_plans_are_checked(monkeypatch):
    with refusal("missing-option", "--partition"):
        TaskPlan(executor="slurm").check()
    with refusal("invalid-value", "--tasks", "1"):
        TaskPlan(tasks=-1).check()
    with refusal("invalid-value", "1,001"):
        TaskPlan(executor="slurm", partition="cpu", tasks=1002).check()
    TaskPlan().check()
    monkeypatch.setitem(sys.modules, "ray", None)
    with refusal("missing-library"):
        TaskPlan(executor="ray").check()
    monkeypatch.setitem(sys.modules, "datatrove", None)
    with refusal("missing-library"):
        TaskPlan().check()


def test_shares_are_runs_of_nearly_equal_size(files):
    inputs = find_inputs(files)
    assert [source for share in divide_inputs(inputs, 3) for source in share] == inputs
    assert len(divide_inputs(inputs, 9)) == 9
    sizes = [sum(source.size for source in share) for share in divide_inputs(inputs * 10, 4)]
    assert max(sizes) - min(sizes) <= 2 * max(source.size for source in inputs)


def test_a_corpus_begun_without_tasks_is_refused(tmp_path, files, tokenizer, monkeypatch):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"Fine. " * 400_000 + b"\xff\xfe broken")
    settings = BuildSettings(shard_tokens=1000)
    monkeypatch.setattr("osbert.corpus.build.PORTION", 1000)
    work = Build.prepare([*files, bad], tokenizer=tokenizer, folder=tmp_path / "out", settings=settings)
    with refusal("wrong-encoding", "8"):
        work.run()
    with refusal("begun-with-other-settings", "--executor"):
        work.run(encode=partial(encode_in_tasks, work, TaskPlan()))
